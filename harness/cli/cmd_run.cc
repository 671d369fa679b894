// `pinion run`: offline generation. Exit 0 done, 1 failed (any line), 2 bad usage.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/run/generate.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_flags.h"
#include "harness/cli/sampling_flags.h"

namespace pinion::harness {
namespace {

struct RunOptions {
  EngineFlags engine;
  SamplingParams sampling;
  std::optional<std::string> prompt;  // "" is one too: some models begin with a token of their own
  std::string input, output = "-";
  bool json = false;
};

// The tokenizer; for a file of prompts null where the model has none, since ids work without.
Result<std::unique_ptr<Tokenizer>> TokenizerFor(const ModelFiles& files,
                                                const RunOptions& options) {
  auto tokenizer = OpenTokenizer(files);
  if (tokenizer || options.prompt) return tokenizer;
  LogWarning("no tokenizer: " + tokenizer.error().message);
  return std::unique_ptr<Tokenizer>();
}

Result<std::vector<Json>> Lines(const RunOptions& options) {
  if (!options.input.empty()) return ReadJsonLines(options.input);
  Json line = Json::MakeObject();
  line.Set("text", *options.prompt);
  return std::vector<Json>{line};
}

// Prints a single prompt's text as it comes.
void PrintText(size_t, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Result<bool> Run(const RunOptions& options) {
  PINION_ASSIGN(const EngineOptions engine_options, options.engine.Resolve());
  PINION_TRY(Validate(options.sampling));
  if (options.prompt.has_value() != options.input.empty())
    return Fail(ErrorCode::kUsage, "give either a prompt with -p or a file with --input");
  PINION_ASSIGN(std::vector<Json> lines, Lines(options));
  if (options.output != "-") PINION_TRY(CheckWritable(options.output));
  PINION_ASSIGN(const ModelFiles files, FindModel(engine_options.model));
  PINION_ASSIGN(const auto tokenizer, TokenizerFor(files, options));
  PINION_ASSIGN(const auto prompts, EncodePrompts(std::move(lines), tokenizer.get()));
  if (options.prompt) PINION_TRY(prompts[0].error);  // before the model takes its minutes to load
  PINION_ASSIGN(const auto engine, Engine::Start(engine_options));

  const bool streams = options.input.empty() && !options.json && options.output == "-";
  const auto results = Generate(*engine, tokenizer.get(), prompts, options.sampling,
                                streams ? OnText(PrintText) : OnText());
  std::vector<Json> out;
  for (size_t i = 0; i < results.size(); ++i) out.push_back(ToJson(prompts[i], results[i]));
  if (streams) {
    PINION_TRY(results[0].error);
    std::printf("\n");
    return true;
  }
  PINION_TRY(WriteJsonLines(options.output, out));
  const bool good = std::all_of(results.begin(), results.end(),
                                [](const Generation& each) { return each.error.has_value(); });
  if (!good) LogError("some lines failed: see their \"error\"");
  return good;
}

}  // namespace

void AddRun(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  auto* command = app.add_subcommand("run", "Generate text offline, greedy unless told otherwise");
  options->engine.AddTo(*command);
  AddSamplingFlags(*command, options->sampling);
  command->add_option("-p,--prompt", options->prompt,
                      "complete this text and print the completion");
  command->add_option(
      "--input", options->input,
      "JSONL, a line each of {\"text\"}, {\"input_ids\"} or {\"messages\"}; '-': stdin");
  command->add_option("--output", options->output, "JSONL to write, '-': stdout")
      ->capture_default_str();
  command->add_flag("--json", options->json, "with -p: the JSON line instead of the text");
  command->callback([options, &exit_code] {
    const auto done = Run(*options);
    exit_code = !done ? Report(done.error()) : *done ? 0 : 1;
  });
}

}  // namespace pinion::harness
