// `pinion bench`: measures one configuration.

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "harness/bench/bench.h"
#include "harness/bench/limits.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_flags.h"
#include "harness/cli/interruption.h"
#include "harness/cli/scaling_runs.h"
#include "harness/cli/trace_flag.h"

namespace pinion::harness {
namespace {

struct BenchFlags {
  EngineFlags engine;
  std::string mode = "latency";
  BenchPlan plan;
  std::optional<int> batch, prompt_len, output_len;
  std::optional<std::string> slo_ttft, slo_tpot, slo_e2el;
  std::string trace;
  bool json = false, scaling = false;
};

Status ReadSlo(const std::optional<std::string>& text, const char* flag,
               std::optional<double>& limit_s) {
  if (!text) return {};
  PINION_ASSIGN(limit_s, ParseDuration(*text, flag));
  return {};
}

Result<BenchPlan> PlanOf(const BenchFlags& flags, const EngineOptions& options) {
  BenchPlan plan = flags.plan;
  for (BenchMode mode : {BenchMode::kLatency, BenchMode::kThroughput, BenchMode::kServing})
    if (flags.mode == Name(mode)) plan.mode = mode;
  plan.batch = flags.batch.value_or(plan.mode == BenchMode::kServing ? 8 : 1);
  plan.prompt_len = flags.prompt_len.value_or(plan.prompt_len);
  plan.output_len = flags.output_len.value_or(plan.output_len);
  plan.seed = options.seed;
  PINION_TRY(ReadSlo(flags.slo_ttft, "--slo-ttft", plan.slo.ttft_s));
  PINION_TRY(ReadSlo(flags.slo_tpot, "--slo-tpot", plan.slo.tpot_s));
  PINION_TRY(ReadSlo(flags.slo_e2el, "--slo-e2el", plan.slo.e2el_s));
  PINION_TRY(Validate(plan));
  return plan;
}

// An embedding or scores have no tokens: no number of them, and no times between them.
Status RefuseFlagsOfAnswers(const BenchFlags& flags, const EngineInfo& engine) {
  if (engine.task == ModelTask::kGenerate) return {};
  for (const auto& [flag, is_given] : {std::pair{"--output-len", flags.output_len.has_value()},
                                       {"--slo-ttft", flags.slo_ttft.has_value()},
                                       {"--slo-tpot", flags.slo_tpot.has_value()},
                                       {"--slo-e2el", flags.slo_e2el.has_value()}})
    if (is_given)
      return Fail(ErrorCode::kUsage,
                  StrCat(flag, " is for models that generate text, and this one makes an ",
                         "embedding or scores; leave it out"));
  return {};
}

// The rounds measured so far. The engine's thread updates it, and the one that an interruption
// runs on reads it.
class Rounds {
 public:
  Rounds(int planned, bool json)
      : planned_(planned), json_(json), show_(isatty(STDERR_FILENO) != 0) {}

  void Take(const BenchResult& so_far) {
    const std::lock_guard lock(mutex_);
    so_far_ = so_far;
    const int round = so_far.plan.rounds;
    if (show_)
      std::fprintf(stderr, "\rround %d of %d%s", round, planned_,
                   round == planned_ ? "\r\033[K" : "");
  }

  std::string LastWords() {
    const std::lock_guard lock(mutex_);
    if (show_) std::fputs("\r\033[K", stderr);
    if (!so_far_) return "no round was measured yet";
    Print(*so_far_);
    return StrCat("the figures printed are of ", so_far_->plan.rounds, " of ", planned_, " rounds");
  }

  void Print(const BenchResult& result) const {
    std::cout << (json_ ? ToJson(result).Dump(2) + "\n" : Render(result)) << std::flush;
  }

 private:
  const int planned_;
  const bool json_, show_;
  std::mutex mutex_;
  std::optional<BenchResult> so_far_;
};

Status Bench(const BenchFlags& flags) {
  PINION_ASSIGN(EngineOptions options, flags.engine.Resolve());
  options.pools = true;
  PINION_ASSIGN(BenchPlan plan, PlanOf(flags, options));
  if (!flags.trace.empty()) PINION_TRY(trace::Begin(flags.trace, "bench"));
  Rounds rounds(plan.rounds, flags.json);
  BenchResult result;
  {
    const Interruption interruption([&] { return rounds.LastWords(); });
    PINION_ASSIGN(const std::unique_ptr<Engine> engine, Engine::Start(options));
    PINION_TRY(RefuseFlagsOfAnswers(flags, engine->info()));
    if (!flags.prompt_len) PINION_TRY(FitPrompt(engine->info(), plan));
    const auto ceilings = StartCeilings(*engine);
    const std::string no_limits_because = ceilings ? "" : ceilings.error().message;
    const auto take = [&](BenchResult so_far) {
      so_far.no_limits_because = no_limits_because;
      rounds.Take(so_far);
    };
    PINION_ASSIGN(result,
                  RunBench(*engine, options, plan, take, ceilings ? ceilings->get() : nullptr));
    result.no_limits_because = no_limits_because;
  }
  rounds.Print(result);
  return {};
}

// The flags of a bench that is one of a scaling's. Limits of goodput are of no use to it.
std::vector<std::string> FlagsOf(const BenchFlags& flags, const BenchPlan& plan) {
  std::vector<std::string> all = {
      "--mode",          Name(plan.mode),           "--batch",  StrCat(plan.batch),
      "--num-prompts",   StrCat(plan.num_prompts),  "--rounds", StrCat(plan.rounds),
      "--shared-prefix", StrCat(plan.shared_prefix)};
  if (flags.prompt_len) all.insert(all.end(), {"--prompt-len", StrCat(*flags.prompt_len)});
  if (flags.output_len) all.insert(all.end(), {"--output-len", StrCat(*flags.output_len)});
  return all;
}

Status Scale(const BenchFlags& flags) {
  if (!flags.trace.empty())
    return Fail(ErrorCode::kUsage,
                "--trace records one bench, and --scaling makes several; give one of them");
  PINION_ASSIGN(const EngineOptions options, flags.engine.Resolve());
  PINION_ASSIGN(const BenchPlan plan, PlanOf(flags, options));
  return BenchScaling(options, FlagsOf(flags, plan), flags.json);
}

}  // namespace

void AddBench(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  auto* command =
      app.add_subcommand("bench", "Measure one configuration: latency, throughput or serving");
  flags->engine.AddTo(*command);
  BenchPlan& plan = flags->plan;
  command
      ->add_option("--mode", flags->mode,
                   "latency: one batch at a time; throughput: all prompts at once; serving: "
                   "clients in a closed loop")
      ->check(CLI::IsMember({"latency", "throughput", "serving"}))
      ->capture_default_str();
  command->add_option("--prompt-len", flags->prompt_len,
                      StrCat("tokens per prompt (default: ", plan.prompt_len,
                             ", or as many as the model's length leaves beside --output-len)"));
  command
      ->add_option("--shared-prefix", plan.shared_prefix,
                   "tokens that all prompts of a round begin with, 0 to --prompt-len")
      ->capture_default_str();
  command->add_option("--output-len", flags->output_len,
                      StrCat("tokens per answer, which the end-of-text token does not end "
                             "(default: ",
                             plan.output_len, ")"));
  command->add_option("--batch", flags->batch,
                      "latency: concurrent requests (default 1); serving: clients (default 8)");
  command->add_option("--num-prompts", plan.num_prompts, "throughput, serving: requests per round")
      ->capture_default_str();
  command->add_option("--rounds", plan.rounds, "rounds to measure, at least 6 for intervals")
      ->capture_default_str();
  command->add_option(
      "--slo-ttft", flags->slo_ttft,
      "serving: longest time to the first token that goodput counts, such as 500ms");
  command->add_option("--slo-tpot", flags->slo_tpot,
                      "serving: longest mean time per later token, such as 50ms");
  command->add_option("--slo-e2el", flags->slo_e2el,
                      "serving: longest time to the last token, such as 5s");
  command->add_flag("--scaling", flags->scaling,
                    "bench 1, 2, 4, ... threads, then all of them in 2, 4, ... ranks, and compare");
  command->add_flag("--json", flags->json, "print JSON instead of text");
  AddTraceFlag(*command, flags->trace);
  command->callback([flags, &exit_code] {
    exit_code = ExitCodeOf(flags->scaling ? Scale(*flags) : Bench(*flags));
  });
}

}  // namespace pinion::harness
