// `pinion score`: log-probabilities and perplexity. Exit 0 done, 1 failed (any line), 2 bad usage.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/run/score.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_flags.h"
#include "harness/cli/score_reference.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

struct ScoreCommand {
  EngineFlags engine;
  ScoreOptions score;
  std::string input, reference;
  std::optional<std::string> output;
  std::vector<std::string> reference_settings;
  size_t window = 512;
  bool json = false;
};

bool IsPlainText(const std::string& path) { return path.ends_with(".txt"); }

Result<std::unique_ptr<Tokenizer>> TokenizerFor(const std::string& model,
                                                const std::vector<Json>& lines) {
  PINION_ASSIGN(const ModelFiles files, FindModel(model));
  const bool needed = std::any_of(lines.begin(), lines.end(), [](const Json& line) {
    return line.Find("input_ids") == nullptr;
  });
  return needed ? OpenTokenizer(files) : std::unique_ptr<Tokenizer>();
}

bool IsLogitsFile(const std::string& reference) { return reference.ends_with(".safetensors"); }

Result<EngineOptions> ReferenceOptions(const ScoreCommand& command, EngineOptions options) {
  const std::string isa = options.isa;
  options.model = command.reference;
  for (const std::string& setting : command.reference_settings)
    PINION_TRY(ApplySetting(setting, options));
  PINION_TRY(Validate(options));
  if (options.isa != isa)
    return Fail(ErrorCode::kUsage,
                StrCat("--reference isa=", options.isa, " cannot run in the process of --isa ", isa,
                       "; write the reference's logits with 'pinion score --isa ", options.isa,
                       " --logits FILE.safetensors' and give that FILE to --compare"));
  return options;
}

// Finds all usage errors before a model is loaded, which may take minutes.
Status CheckFlags(const ScoreCommand& command) {
  const bool runs_reference = !command.reference.empty() && !IsLogitsFile(command.reference);
  if (!command.reference_settings.empty() && !runs_reference)
    return Fail(
        ErrorCode::kUsage,
        "--reference changes the settings of the model of --compare: give --compare MODEL too");
  if (command.json && command.reference.empty())
    return Fail(ErrorCode::kUsage,
                "--json is for the result of --compare: leave it out, scores are JSON lines in any "
                "case");
  if (!command.score.logits_path.empty()) PINION_TRY(CheckWritable(command.score.logits_path));
  if (command.output && *command.output != "-") return CheckWritable(*command.output);
  return {};
}

std::string Number(const Json* value) {
  return value && !value->is_null() ? Printf("%.4g", value->number()) : "-";
}

std::string Describe(const Json& whole, const std::string& reference) {
  if (!whole.Find("positions")) return StrCat("nothing to compare with ", reference, "\n");
  const auto of = [&](const char* key) { return Number(whole.Find(key)); };
  std::string text =
      StrCat("against ", reference, ", ", whole.Find("positions")->integer(), " tokens\n",
             "  KL divergence   mean ", of("kl_nats"), ", p99 ", of("kl_p99_nats"), ", max ",
             of("kl_max_nats"), " nats a token\n", "  top-1 agreement ",
             Printf("%.2f %%", 100 * whole.Find("top1_agreement")->number()), "\n");
  if (whole.Find("perplexity"))
    text += StrCat("  perplexity      ", of("perplexity"), ", the reference's ",
                   of("reference_perplexity"), ", difference ", of("perplexity_difference"), "\n");
  return text;
}

Status WriteScores(const ScoreCommand& command, const Scores& scores) {
  const std::string output = command.output.value_or(scores.whole ? "" : "-");
  if (!output.empty()) PINION_TRY(WriteJsonLines(output, scores.lines));
  if (!scores.whole) return {};
  const std::string text =
      command.json ? scores.whole->Dump() + "\n" : Describe(*scores.whole, command.reference);
  std::fputs(text.c_str(), stdout);
  return {};
}

Result<bool> Run(ScoreCommand command) {
  PINION_ASSIGN(const EngineOptions options, command.engine.Resolve());
  PINION_TRY(CheckFlags(command));
  const bool runs_reference = !command.reference.empty() && !IsLogitsFile(command.reference);
  EngineOptions others = options;
  if (runs_reference) {
    PINION_ASSIGN(others, ReferenceOptions(command, options));
  }
  PINION_ASSIGN(const std::vector<Json> lines, ReadPromptFile(command.input));
  PINION_ASSIGN(const auto tokenizer, TokenizerFor(options.model, lines));
  PINION_ASSIGN(auto prompts, EncodePrompts(lines, tokenizer.get()));
  std::optional<TemporaryFile> reference;
  if (runs_reference) PINION_TRY(CheckComparable(options.model, command.reference, lines, prompts));
  if (IsPlainText(command.input)) {
    PINION_TRY(prompts[0].error);
    prompts = CutWindows(prompts[0].ids, command.window);
  }
  command.score.compare_path = command.reference;
  if (runs_reference) {
    PINION_ASSIGN(reference, RunReference(others, prompts));
    command.score.compare_path = reference->path();
  }
  PINION_ASSIGN(const auto engine, Engine::Start(options));
  PINION_ASSIGN(const Scores scores, Score(*engine, prompts, command.score));
  PINION_TRY(WriteScores(command, scores));
  const bool good = std::none_of(scores.lines.begin(), scores.lines.end(),
                                 [](const Json& line) { return line.Find("error") != nullptr; });
  if (!good) LogError("some lines failed: see their \"error\"");
  return good;
}

}  // namespace

void AddScore(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ScoreCommand>();
  auto* command =
      app.add_subcommand("score", "Compute log-probabilities and perplexity of given texts");
  options->engine.AddTo(*command);
  command
      ->add_option("--input", options->input,
                   "JSONL with {\"text\"}, {\"input_ids\"} or {\"messages\"} per line; '-': stdin; "
                   "FILE.txt: plain text, cut into windows")
      ->required();
  command->add_option("--window", options->window, "tokens that each window of FILE.txt predicts")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--output", options->output,
                      "JSONL to write, '-': stdout (default '-', and none with --compare)");
  command
      ->add_option("--top-logprobs", options->score.top_logprobs,
                   "also report this many likeliest tokens at each position")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command->add_option(
      "--logits", options->score.logits_path,
      "safetensors file to write with prompt<i>.logits, float32 [tokens, vocabulary]");
  command->add_option("--compare", options->reference,
                      "reference: another MODEL with the same tokenizer, or its logits as --logits "
                      "writes them for the same input; prints KL divergence, top-1 agreement and "
                      "both perplexities");
  command->add_option(
      "--reference", options->reference_settings,
      "with --compare MODEL: a setting of the reference that differs, NAME=VALUE "
      "as in a profile, such as dtype=float32 or kv_cache_space=1; may be repeated");
  command->add_flag("--json", options->json, "with --compare: print JSON instead of text");
  command->callback([options, &exit_code] { exit_code = ExitCodeOf(Run(*options)); });
}

}  // namespace pinion::harness
