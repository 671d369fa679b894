// `pinion score`: log-probabilities and perplexity. Exit 0 done, 1 failed (any line), 2 bad usage.

#include <algorithm>
#include <memory>
#include <string>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/run/score.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_flags.h"

namespace pinion::harness {
namespace {

struct ScoreCommand {
  EngineFlags engine;
  ScoreOptions score;
  std::string input, output = "-";
};

Result<bool> Run(const ScoreCommand& command) {
  PINION_ASSIGN(const EngineOptions engine_options, command.engine.Resolve());
  PINION_ASSIGN(std::vector<Json> lines, ReadJsonLines(command.input));
  if (command.output != "-") PINION_TRY(CheckWritable(command.output));
  PINION_ASSIGN(const ModelFiles files, FindModel(engine_options.model));
  const bool needs_tokenizer = std::any_of(lines.begin(), lines.end(), [](const Json& line) {
    return line.Find("input_ids") == nullptr;
  });
  std::unique_ptr<Tokenizer> tokenizer;
  if (needs_tokenizer) {
    PINION_ASSIGN(tokenizer, OpenTokenizer(files));
  }
  PINION_ASSIGN(const auto prompts, EncodePrompts(std::move(lines), tokenizer.get()));
  PINION_ASSIGN(const auto engine, Engine::Start(engine_options));
  PINION_ASSIGN(const auto out, Score(*engine, prompts, command.score));
  PINION_TRY(WriteJsonLines(command.output, out));
  const bool good = std::none_of(out.begin(), out.end(),
                                 [](const Json& line) { return line.Find("error") != nullptr; });
  if (!good) LogError("some lines failed: see their \"error\"");
  return good;
}

}  // namespace

void AddScore(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ScoreCommand>();
  auto* command = app.add_subcommand("score", "Log-probabilities and perplexity of given texts");
  options->engine.AddTo(*command);
  command
      ->add_option(
          "--input", options->input,
          "JSONL, a line each of {\"text\"}, {\"input_ids\"} or {\"messages\"}; '-': stdin")
      ->required();
  command->add_option("--output", options->output, "JSONL to write, '-': stdout")
      ->capture_default_str();
  command->add_option("--top-logprobs", options->score.top_logprobs, "the K best ids a position")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command->add_option(
      "--logits", options->score.logits_path,
      "safetensors file to write with prompt<i>.logits, float32 [tokens, vocabulary]");
  command->add_option("--compare", options->score.compare_path,
                      "logits of a reference, as --logits writes them for the same input: KL "
                      "divergence, top-1 agreement, perplexity difference");
  command->callback([options, &exit_code] {
    const auto done = Run(*options);
    exit_code = !done ? Report(done.error()) : *done ? 0 : 1;
  });
}

}  // namespace pinion::harness
