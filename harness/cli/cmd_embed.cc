// `pinion embed` and `pinion rank`: embeddings of texts, scores of documents for a query. Exit 0
// done, 1 failed (any line), 2 bad usage.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/run/embed.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_flags.h"

namespace pinion::harness {
namespace {

struct EmbedCommand {
  EngineFlags engine;
  EmbedOptions embed;
  std::string input, output = "-";
};

struct RankCommand {
  EngineFlags engine;
  std::string input, output = "-";
  bool logits = false;
};

// All usage errors that can be found before a model is loaded, which may take minutes.
Result<ModelTask> TaskOf(EngineOptions& options, ModelTask wanted, const std::string& output) {
  if (output != "-") PINION_TRY(CheckWritable(output));
  PINION_ASSIGN(ModelFiles files, FindModel(options.model));
  // A generative model embeds here, too.
  options.pools = true;
  if (options.task == "auto" && files.spec.has_head()) options.task = Name(wanted);
  return ApplyTask(options.task, files);
}

Result<bool> Write(const std::string& output, const std::vector<Json>& lines) {
  PINION_TRY(WriteJsonLines(output, lines));
  const bool good = std::none_of(lines.begin(), lines.end(),
                                 [](const Json& line) { return line.Find("error") != nullptr; });
  if (!good) LogError("some lines failed: see their \"error\"");
  return good;
}

Result<bool> Embed(const EmbedCommand& command) {
  PINION_ASSIGN(EngineOptions options, command.engine.Resolve());
  PINION_ASSIGN(const ModelTask task, TaskOf(options, ModelTask::kEmbed, command.output));
  if (task != ModelTask::kEmbed)
    return Fail(ErrorCode::kUsage,
                "the model does not embed texts, it scores them; use 'pinion rank'");
  PINION_ASSIGN(const std::vector<JsonLine> lines, ReadNumberedLines(command.input));
  std::unique_ptr<Tokenizer> tokenizer;
  if (std::any_of(lines.begin(), lines.end(),
                  [](const JsonLine& line) { return !line.value.Find("input_ids"); })) {
    PINION_ASSIGN(const ModelFiles files, FindModel(options.model));
    PINION_ASSIGN(tokenizer, OpenTokenizer(files));
  }
  PINION_ASSIGN(const auto engine, Engine::Start(options));
  PINION_ASSIGN(const auto answers, EmbedLines(*engine, tokenizer.get(), lines, command.embed));
  return Write(command.output, answers);
}

Result<bool> Rank(const RankCommand& command) {
  PINION_ASSIGN(EngineOptions options, command.engine.Resolve());
  PINION_ASSIGN(const ModelTask task, TaskOf(options, ModelTask::kScore, command.output));
  if (task != ModelTask::kScore)
    return Fail(ErrorCode::kUsage,
                "the model does not score texts, it embeds them; use 'pinion embed'");
  PINION_ASSIGN(const std::vector<JsonLine> lines, ReadNumberedLines(command.input));
  PINION_ASSIGN(const ModelFiles files, FindModel(options.model));
  PINION_ASSIGN(const auto tokenizer, OpenTokenizer(files));
  PINION_ASSIGN(const auto engine, Engine::Start(options));
  PINION_ASSIGN(const auto answers, RankLines(*engine, *tokenizer, lines, command.logits));
  return Write(command.output, answers);
}

}  // namespace

void AddEmbed(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<EmbedCommand>();
  auto* command = app.add_subcommand("embed", "Compute embeddings of texts");
  options->engine.AddTo(*command);
  command
      ->add_option("--input", options->input,
                   "JSONL with {\"text\"} or {\"input_ids\"} per line, and \"dimensions\" if it "
                   "wants its own; '-': stdin")
      ->required();
  command->add_option("--output", options->output, "JSONL to write, '-': stdout")
      ->capture_default_str();
  command->add_option("--prompt-name", options->embed.prompt_name,
                      "one of the model's prompts, put before each text; a line's own "
                      "\"prompt_name\" comes first (default: the model's default, if it has one)");
  command
      ->add_option("--dimensions", options->embed.dimensions,
                   "keep this many of each embedding (Matryoshka models); 0: all")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->callback([options, &exit_code] { exit_code = ExitCodeOf(Embed(*options)); });
}

void AddRank(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RankCommand>();
  auto* command = app.add_subcommand("rank", "Score how well documents match a query");
  options->engine.AddTo(*command);
  command
      ->add_option("--input", options->input,
                   "JSONL with {\"query\", \"documents\": [...]} per line; '-': stdin")
      ->required();
  command->add_option("--output", options->output, "JSONL to write, '-': stdout")
      ->capture_default_str();
  command->add_flag("--logits", options->logits, "write logits instead of probabilities");
  command->callback([options, &exit_code] { exit_code = ExitCodeOf(Rank(*options)); });
}

}  // namespace pinion::harness
