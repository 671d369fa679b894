// `pinion sweep`: the main job. Exit 0 done (or all that fitted the budget), 1 failed or
// interrupted, 2 bad usage.

#include <signal.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "engine/base/file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "engine/model/model.h"
#include "engine/run/replicas.h"
#include "engine/run/start.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_flags.h"
#include "harness/cli/stop_request.h"
#include "harness/cli/sweep_replay.h"
#include "harness/counters/energy.h"
#include "harness/report/export.h"
#include "harness/report/write.h"
#include "harness/sweep/folder.h"
#include "harness/sweep/load.h"
#include "harness/sweep/predict.h"
#include "harness/sweep/summary.h"
#include "harness/sweep/sweep.h"
#include "harness/watch/server.h"
#include "harness/watch/watched.h"

namespace pinion::harness {
namespace {

struct SweepFlags {
  EngineFlags engine;
  ReplayFlags replay;
  std::string definition_file, out, other_engine, machine, probe, workload;
  bool quick = false, resume = false, json = false;
  std::optional<std::string> budget, strategy;
  std::optional<double> epsilon;
  std::optional<int> prompt_len, output_len, num_prompts, rounds;
  std::optional<std::vector<int>> concurrency, replicas;
  std::optional<std::vector<std::string>> objectives, slo;
  std::optional<std::string> max_memory;
  std::optional<int> max_cores;
  std::vector<uint16_t> watch;  // one port; 0: any
  bool watched = false;
};

// "preset:tiny" -> "out/preset-tiny".
std::string DefaultFolder(std::string model) {
  while (!model.empty() && model.back() == '/') model.pop_back();
  if (model.find(':') == std::string::npos) model = model.substr(model.rfind('/') + 1);
  for (char& letter : model)
    if (letter == ':' || letter == '/') letter = '-';
  return "out/" + model;
}

std::string CommandLine() {
  std::string text = ReadFile("/proc/self/cmdline").value_or("");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& letter : text)
    if (letter == '\0') letter = ' ';
  return text;
}

// What flags say in the words of a definition, so that it is read and checked in one place.
Result<Json> AsDefinition(const SweepFlags& flags) {
  Json asked = Json::MakeObject();
  if (flags.objectives) asked.Set("objectives", Json(*flags.objectives));
  if (flags.slo) {
    Json slo = Json::MakeObject(), workload = Json::MakeObject();
    for (const std::string& text : *flags.slo) {
      const std::vector<std::string> parts = Split(text, '=');
      if (parts.size() != 2)
        return Fail(ErrorCode::kUsage,
                    StrCat("--slo '", text, "' must be as ttft=500ms, tpot=100ms or e2el=5s"));
      const auto number = Json::Parse(parts[1]);
      slo.Set(parts[0], number ? *number : Json(parts[1]));
    }
    workload.Set("slo", std::move(slo));
    asked.Set("workload", std::move(workload));
  }
  Json constraints = Json::MakeObject();
  if (flags.max_memory) constraints.Set("peak_rss", *flags.max_memory);
  if (flags.max_cores) constraints.Set("cores", *flags.max_cores);
  if (!constraints.object().empty()) asked.Set("constraints", std::move(constraints));
  return asked;
}

Status ApplyFlags(const SweepFlags& flags, const EngineOptions& base, Definition& definition) {
  const auto take = [](const auto& flag, auto& field) {
    if (flag) field = *flag;
  };
  if (!flags.workload.empty()) {
    Json named = Json::MakeObject();
    named.Set("name", flags.workload);
    PINION_TRY(FromJson(named, definition.workload));
  }
  take(flags.prompt_len, definition.workload.prompt_len);
  take(flags.output_len, definition.workload.output_len);
  take(flags.num_prompts, definition.workload.num_prompts);
  take(flags.concurrency, definition.workload.concurrency);
  take(flags.replicas, definition.space.replicas);
  take(flags.rounds, definition.rounds);
  take(flags.epsilon, definition.epsilon);
  if (flags.strategy) {
    PINION_ASSIGN(definition.strategy, ParseStrategy(*flags.strategy));
  }
  if (flags.budget) {
    PINION_ASSIGN(definition.budget_s, ParseDuration(*flags.budget, "--budget"));
  }
  if (base.seed != 0) definition.seed = base.seed;
  PINION_ASSIGN(const Json asked, AsDefinition(flags));
  PINION_TRY(FromJson(asked, definition));
  return Validate(definition);
}

// The flag's, else the file's, else ours.
Result<EngineChoice> EngineFrom(const SweepFlags& flags, const Json& file) {
  if (flags.other_engine.empty()) {
    const Json* engine = file.Find("engine");
    return engine ? ReadEngineChoice(*engine) : EngineChoice();
  }
  const bool is_json = flags.other_engine[0] == '{';
  PINION_ASSIGN(const Json engine,
                is_json ? Json::Parse(flags.other_engine) : Result<Json>(Json(flags.other_engine)));
  return ReadEngineChoice(engine);
}

Result<Definition> BuiltIn(const SweepFlags& flags, const EngineOptions& base, const Host& host,
                           EngineChoice engine) {
  Occasion occasion{std::move(engine)};
  if (occasion.engine.is_pinion()) {
    PINION_ASSIGN(const DecoderSpec model, SpecFor(base));
    occasion.has_integers = model.formats.Count(IntegerProduct::kInt8) > 0;
  }
  return flags.quick ? QuickDefinition(host, base, occasion)
                     : DefaultDefinition(host, base, occasion);
}

// Built-in definition < file < flags. A file that names a space replaces the built-in one.
Result<Definition> DefinitionFrom(const SweepFlags& flags, const EngineOptions& base,
                                  const Host& host) {
  Json file;
  if (!flags.definition_file.empty()) {
    PINION_ASSIGN(file, Json::ParseFile(flags.definition_file));
  }
  PINION_ASSIGN(EngineChoice engine, EngineFrom(flags, file));
  PINION_ASSIGN(Definition definition, BuiltIn(flags, base, host, engine));
  if (!flags.definition_file.empty()) {
    if (file.Find("space") || file.Find("candidates")) {
      definition.space = {};
      definition.candidates.clear();
    }
    if (auto read = FromJson(file, definition); !read)
      return Unexpected(std::move(read).error().In(flags.definition_file));
  }
  definition.engine = std::move(engine);
  return definition;
}

// Another machine's ceilings would prune what is best here.
Status CheckProbed(const std::string& path, const Machine& machine) {
  PINION_ASSIGN(const Json probe, Json::ParseFile(path));
  const Json* probed = probe.Find("machine");
  const Json here = MachineFingerprint(machine);
  for (const char* key : {"cpu_model", "cores", "cpus"}) {
    const Json *there = probed ? probed->Find(key) : nullptr, *own = here.Find(key);
    if (there && own && *there == *own) continue;
    return Fail(ErrorCode::kUsage,
                StrCat(path, " was probed on another machine (", key, " is ",
                       there ? there->Dump() : "unknown", " there, ", own ? own->Dump() : "unknown",
                       " here): run `pinion probe --out ", path, "` on this one"));
  }
  return {};
}

// What a probe's ceilings say about every candidate; null without --probe.
Result<Json> PredictionsFor(const SweepFlags& flags, const Definition& definition,
                            const EngineOptions& base, const Host& host) {
  if (flags.probe.empty()) return Json();
  if (!definition.engine.is_pinion())
    return Fail(ErrorCode::kUsage, "--probe predicts Pinion's own engine alone: leave it out");
  PINION_ASSIGN(const Json probe, Json::ParseFile(flags.probe));
  PINION_ASSIGN(const ModelFiles model, FindModel(base.model));
  PINION_ASSIGN(const std::vector<Point> points, Expand(definition, base, host, model.spec));
  auto plan = PredictAll(points, host, base.model, definition.workload, probe);
  if (!plan) return Unexpected(std::move(plan).error().In(flags.probe));
  return plan;
}

// `--machine FILE --probe FILE`: the plan for a machine that is not here, and nothing run.
Status PlanElsewhere(const SweepFlags& flags) {
  EngineOptions base;
  base.has_frontend = true;
  PINION_ASSIGN(base, flags.engine.Resolve(base));
  PINION_ASSIGN(const Json probe, Json::ParseFile(flags.probe));
  auto probed = ProbedMachine::Parse(probe);
  if (!probed) return Unexpected(std::move(probed).error().In(flags.probe));
  Host host;
  PINION_ASSIGN(host.machine, ImagineMachine(flags.machine));
  PINION_ASSIGN(host.budget, ComputeBudget(host.machine));
  host.isas = probed->Isas();
  PINION_ASSIGN(Definition definition, DefinitionFrom(flags, base, host));
  PINION_TRY(ApplyFlags(flags, base, definition));
  PINION_ASSIGN(const Json plan, PredictionsFor(flags, definition, base, host));
  std::cout << (flags.json ? plan.Dump(2) + "\n" : RenderPlan(plan)) << std::flush;
  return {};
}

// Takes out what cannot be had here and says why; an error where nothing is left.
Result<std::vector<std::string>> TakeUnavailable(Definition& definition) {
  const std::string why = EnergyReading::Now().unavailable;
  const bool asked = std::erase(definition.objectives, Objective::kEnergy) > 0;
  if (!asked) return std::vector<std::string>();
  if (why.empty()) {
    definition.objectives.push_back(Objective::kEnergy);
    return std::vector<std::string>();
  }
  const std::string sentence = StrCat("energy: not available, because ", why);
  if (definition.objectives.empty()) return Fail(ErrorCode::kUnsupported, sentence);
  return std::vector<std::string>{sentence};
}

struct Asked {
  std::string folder;
  SweepMeta meta;
};

Result<Asked> Ask(const SweepFlags& flags) {
  std::optional<SweepMeta> stored;
  EngineOptions base;
  base.has_frontend = true;  // what is measured is what `launch` starts: with a front end beside it
  PINION_ASSIGN(const EngineOptions named, flags.engine.Resolve(base));
  const std::string folder = flags.out.empty() ? DefaultFolder(named.model) : flags.out;
  if (flags.resume) {
    PINION_ASSIGN(stored, StoredSweep(folder));
    base = stored->base;
  } else if (HoldsSweep(folder)) {
    return Fail(
        ErrorCode::kUsage,
        StrCat(folder, " holds a sweep already; go on with --resume, or take another --out"));
  }
  PINION_ASSIGN(base, flags.engine.Resolve(base));
  PINION_ASSIGN(const Host host, Host::This());
  Definition definition;
  if (stored && flags.definition_file.empty() && !flags.quick) {
    definition = stored->definition;
  } else {
    PINION_ASSIGN(definition, DefinitionFrom(flags, base, host));
  }
  PINION_TRY(ApplyFlags(flags, base, definition));
  PINION_ASSIGN(std::vector<std::string> unavailable, TakeUnavailable(definition));
  for (const std::string& sentence : unavailable) std::cerr << sentence << std::endl;
  PINION_ASSIGN(SweepMeta meta, DescribeSweep(definition, base, host, CommandLine()));
  meta.unavailable = stored ? stored->unavailable : std::move(unavailable);
  if (stored && flags.probe.empty()) {
    meta.predictions = stored->predictions;
  } else if (!flags.probe.empty()) {
    PINION_TRY(CheckProbed(flags.probe, host.machine));
    PINION_ASSIGN(meta.predictions, PredictionsFor(flags, definition, base, host));
  }
  return Asked{folder, std::move(meta)};
}

Status RunReplay(const SweepFlags& flags) {
  Definition definition;
  EngineOptions base;
  base.model = "recording";  // there is none to run, and the flags are checked with one
  PINION_ASSIGN(base, flags.engine.Resolve(base));
  PINION_TRY(ApplyFlags(flags, base, definition));
  return RunReplayCommand(flags.replay, definition, flags.budget ? definition.budget_s : 0,
                          flags.json);
}

Status RunSweepCommand(const SweepFlags& flags) {
  if (flags.replay.given()) return RunReplay(flags);
  if (!flags.machine.empty()) return PlanElsewhere(flags);
  PINION_ASSIGN(Asked asked, Ask(flags));
  // The first Ctrl-C or SIGTERM ends the sweep in order; a second one ends it at once.
  CatchStopRequests({SIGINT, SIGTERM});
  SweepRequest request;
  request.folder = asked.folder;
  request.resume = flags.resume;
  request.meta = std::move(asked.meta);
  request.binary = SelfPath();
  request.interrupted = StopRequested;
  SweepEnd end = SweepEnd::kInterrupted;
  std::unique_ptr<WatchServer> server;
  if (flags.watched) {
    PINION_ASSIGN(server,
                  WatchServer::Start(asked.folder, flags.watch.empty() ? 0 : flags.watch.front()));
    std::cerr << "watch it at http://127.0.0.1:" << server->port() << "/" << std::endl;
  }
  {
    WatchedProgress progress(asked.folder, server.get());
    PINION_ASSIGN(end, RunSweep(request, progress));
  }
  if (server) server->Tell(end == SweepEnd::kInterrupted ? "interrupted" : "finished", true);
  PINION_ASSIGN(const Results results, LoadResults(asked.folder));
  const Status written = WriteOutputs(results, asked.folder);
  std::cout << (flags.json ? ResultsJson(results, asked.folder).Dump(2) + "\n"
                           : SummaryText(results, asked.folder))
            << std::flush;
  PINION_TRY(written);
  if (end == SweepEnd::kInterrupted)
    return Fail(ErrorCode::kFailed, StrCat("interrupted; all finished trials are in ", asked.folder,
                                           "/results.db, and --resume goes on"));
  return {};
}

}  // namespace

void AddSweep(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<SweepFlags>();
  auto* command =
      app.add_subcommand("sweep", "Find the fastest settings for a model on this machine");
  flags->engine.AddTo(*command);
  command->get_option("MODEL")->required(false);  // a replay has none
  command->add_option("--engine", flags->other_engine,
                      "measure another engine: vllm, llama.cpp, or as JSON any command that serves "
                      "OpenAI's API, {\"command\":[\"./server\",\"--port\",\"{port}\"]} "
                      "(default pinion)");
  command
      ->add_option(
          "--def", flags->definition_file,
          "sweep definition (profiles/sweep.schema.json); default: what suits this machine")
      ->check(CLI::ExistingFile);
  command->footer(
      "Concurrency and rate vary inside a trial; everything else is a configuration and restarts "
      "the engine. The step budget (max_num_batched_tokens) too: workspace and KV are sized by it "
      "at start. With replicas all are measured as servers over HTTP; no built-in space has any.");
  command->add_flag("--quick", flags->quick, "at most 6 candidates, 6 rounds, 10 minutes");
  command->add_option("--budget", flags->budget, "time for all of it, as 10m or 2h (default 30m)");
  command->add_option("--out", flags->out, "folder for everything (default out/MODEL)");
  command->add_flag("--resume", flags->resume, "go on with the sweep in the folder");
  command->add_option("--workload", flags->workload,
                      "chat, rag (a long shared prefix), code, summarise or batch: lengths spread "
                      "as in practice (default: all of the same length)");
  command->add_option("--prompt-len", flags->prompt_len, "tokens in; of a --workload the median");
  command->add_option("--output-len", flags->output_len, "tokens out, EOS ignored");
  command->add_option("--concurrency", flags->concurrency, "clients of the closed loops, as 1,8")
      ->delimiter(',');
  command
      ->add_option(
          "--replicas", flags->replicas,
          "engine processes behind one load, as 1,2: each with CPUs (--threads-bind lists: "
          "one per rank of every replica), weights and --kv-cache-space of its own")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxReplicas));
  command->add_option("--num-prompts", flags->num_prompts, "requests of the offline batch");
  auto* watch = command
                    ->add_option("--watch", flags->watch,
                                 "show the report in a browser while it fills up, on this port of "
                                 "127.0.0.1 (default: any free one)")
                    ->expected(0, 1)
                    ->type_name("[PORT]");
  command->add_option("--rounds", flags->rounds,
                      "at most so many (default 20); a race ends when nothing better can be left");
  command->add_option("--search,--strategy", flags->strategy,
                      "racing (default), grid, random or coordinate");
  command
      ->add_option("--objectives", flags->objectives,
                   "what to find the best of: throughput, latency, balanced (default: these), "
                   "goodput, cores (fewest, within cores_within of the throughput), energy")
      ->delimiter(',');
  command
      ->add_option("--slo", flags->slo,
                   "limits on ttft, tpot or e2el, as ttft=500ms,tpot=50ms: goodput counts the "
                   "requests that meet them, and every trial looks for the load at which the part "
                   "attain=0.9 does")
      ->delimiter(',');
  command->add_option("--max-memory", flags->max_memory,
                      "peak memory that a configuration may take, as 8GiB: who takes more is out");
  command->add_option("--max-cores", flags->max_cores, "threads that a configuration may use")
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--epsilon", flags->epsilon,
                      "smallest difference worth having, a fraction (default 0.02)");
  auto* probe =
      command->add_option("--probe", flags->probe,
                          "output of `pinion probe --out FILE`: predict every candidate, measure "
                          "the most promising first, and not those that cannot win");
  probe->check(CLI::ExistingFile);
  command
      ->add_option(
          "--machine", flags->machine,
          "plan for a machine that is not here, by prediction alone: an .xml file that "
          "lstopo wrote, or as \"pack:2 numa:1 core:32 pu:2\"; --probe says what it can do")
      ->needs(probe);
  flags->replay.AddTo(*command);
  command->add_flag("--json", flags->json, "results.json on standard output");
  command->callback([flags, watch, &exit_code] {
    flags->watched = watch->count() > 0;
    const Status done = RunSweepCommand(*flags);
    exit_code = done ? 0 : Report(done.error());
  });
}

}  // namespace pinion::harness
