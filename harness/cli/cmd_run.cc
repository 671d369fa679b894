// `pinion run`: offline generation. Exit 0 done, 1 failed (any line), 2 bad usage.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/run/generate.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_flags.h"
#include "harness/cli/interruption.h"
#include "harness/cli/sampling_flags.h"
#include "harness/cli/trace_flag.h"

namespace pinion::harness {
namespace {

struct RunOptions {
  EngineFlags engine;
  SamplingParams sampling;
  std::optional<std::string> prompt;  // may be "": some models begin with a token of their own
  std::string input, output = "-", trace;
  bool json = false;
};

// The tokenizer. For a file of prompts null if the model has none, since token ids work without.
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

// The progress of the batch. The engine's thread updates it, and the one that an interruption runs
// on reads it.
class RunProgress {
 public:
  explicit RunProgress(size_t prompts) : prompts_(prompts), show_(isatty(STDERR_FILENO) != 0) {}

  // Keeps results in input order: a line waits only for those before it.
  Status Finish(size_t index, Json line, JsonLinesFile& output) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(index, std::move(line));
    for (auto next = waiting_.find(written_); next != waiting_.end();
         next = waiting_.find(written_)) {
      PINION_TRY(output.Append(next->second));
      waiting_.erase(next);
      ++written_;
    }
    return {};
  }

  void Advance(uint64_t tokens) {
    const std::lock_guard lock(mutex_);
    tokens_ = tokens;
    const int64_t now_ns = NowNs();
    if (!show_ || now_ns < shown_ns_ + kShowEveryNs) return;
    shown_ns_ = now_ns;
    std::fprintf(stderr, "\r%zu of %zu prompts, %llu tokens\033[K", written_ + waiting_.size(),
                 prompts_, static_cast<unsigned long long>(tokens));
  }

  void Clear() const {
    if (show_) std::fputs("\r\033[K", stderr);
  }

  std::string LastWords(const RunOptions& options) {
    const std::lock_guard lock(mutex_);
    Clear();
    if (options.prompt) return StrCat("after ", tokens_, " tokens of the completion");
    return StrCat(written_, " of ", prompts_, " results are written to ",
                  options.output == "-" ? "standard output" : "'" + options.output + "'",
                  ", the first ones of the input");
  }

 private:
  static constexpr int64_t kShowEveryNs = 200'000'000;
  const size_t prompts_;
  const bool show_;
  std::mutex mutex_;
  std::map<size_t, Json> waiting_;
  size_t written_ = 0;
  uint64_t tokens_ = 0;
  int64_t shown_ns_ = 0;
};

// Prints a single prompt's text as it is generated.
void PrintText(size_t, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Finds all usage errors before the model is loaded, which may take minutes.
Status CheckFlags(const RunOptions& options) {
  PINION_TRY(Validate(options.sampling));
  if (options.prompt.has_value() != options.input.empty())
    return Fail(ErrorCode::kUsage, "give either a prompt with -p or a file with --input");
  if (options.output != "-") PINION_TRY(CheckWritable(options.output));
  return options.trace.empty() ? Status{} : trace::Begin(options.trace, "run");
}

// False: some lines were refused.
Result<bool> Complete(Engine& engine, const Tokenizer* tokenizer,
                      const std::vector<Prompt>& prompts, const RunOptions& options,
                      RunProgress& progress) {
  GenerateHooks hooks;
  hooks.on_step = [&](uint64_t tokens) { progress.Advance(tokens); };
  const bool streams = options.input.empty() && !options.json && options.output == "-";
  if (streams) {
    hooks.on_text = PrintText;
    const auto results = Generate(engine, tokenizer, prompts, options.sampling, hooks);
    PINION_TRY(results[0].error);
    std::printf("\n");
    return true;
  }
  PINION_ASSIGN(JsonLinesFile output, JsonLinesFile::Create(options.output));
  Status written;
  hooks.on_done = [&](size_t index, const PromptResult& result) {
    if (written) written = progress.Finish(index, ToJson(prompts[index], result), output);
  };
  const auto results = Generate(engine, tokenizer, prompts, options.sampling, hooks);
  progress.Clear();
  PINION_TRY(written);
  return std::all_of(results.begin(), results.end(),
                     [](const PromptResult& each) { return each.error.has_value(); });
}

Result<bool> Run(const RunOptions& options) {
  PINION_ASSIGN(const EngineOptions engine_options, options.engine.Resolve());
  PINION_TRY(CheckFlags(options));
  PINION_ASSIGN(std::vector<Json> lines, Lines(options));
  PINION_ASSIGN(const ModelFiles files, FindModel(engine_options.model));
  const auto vocabulary = static_cast<size_t>(files.spec.vocabulary);
  if (const auto unknown = FindUnknownId(options.sampling, vocabulary))
    return Fail(ErrorCode::kUsage, Describe(*unknown, vocabulary));
  PINION_ASSIGN(const auto tokenizer, TokenizerFor(files, options));
  PINION_ASSIGN(const auto prompts, EncodePrompts(std::move(lines), tokenizer.get()));
  if (options.prompt) PINION_TRY(prompts[0].error);

  RunProgress progress(prompts.size());
  const Interruption interruption([&] { return progress.LastWords(options); });
  PINION_ASSIGN(const auto engine, Engine::Start(engine_options));
  PINION_ASSIGN(const bool good, Complete(*engine, tokenizer.get(), prompts, options, progress));
  if (!good) LogError("some lines failed: see their \"error\"");
  return good;
}

}  // namespace

void AddRun(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  auto* command =
      app.add_subcommand("run", "Complete a text, or a file of prompts, without a server");
  options->engine.AddTo(*command);
  AddSamplingFlags(*command, options->sampling);
  command->add_option("-p,--prompt", options->prompt,
                      "complete this text and print the completion");
  command->add_option(
      "--input", options->input,
      "JSONL with {\"text\"}, {\"input_ids\"} or {\"messages\"} per line; '-': stdin");
  command->add_option("--output", options->output, "JSONL to write, '-': stdout")
      ->capture_default_str();
  command->add_flag("--json", options->json, "with -p: print JSON instead of text");
  AddTraceFlag(*command, options->trace);
  command->callback([options, &exit_code] { exit_code = ExitCodeOf(Run(*options)); });
}

}  // namespace pinion::harness
