// `pinion tokenize`: text, ids and chats through a model's tokenizer, line by line.

#include <time.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/model.h"
#include "engine/text/tokenize_line.h"
#include "harness/cli/commands.h"

namespace pinion::harness {
namespace {

struct TokenizeOptions {
  std::string folder, input, output = "-";
  std::optional<std::string> chat_template, now;
};

// A CLI11 check: empty if `text` begins with a date; the template's clock parses the rest.
std::string CheckTime(const std::string& text) {
  tm parsed{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%d", &parsed);
  if (rest && (*rest == '\0' || *rest == 'T' || *rest == ' ')) return "";
  return "'" + text + "' is not an ISO time, such as 2025-03-04T09:05:07";
}

Result<std::string> ReadInput(const std::string& path) {
  if (path == "-")
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  return ReadFile(path);
}

// A folder needs only a tokenizer; anything else is a model's name as in other commands.
Result<std::unique_ptr<Tokenizer>> TokenizerOf(const std::string& model) {
  if (std::filesystem::is_directory(model)) return LoadTokenizer(model);
  PINION_ASSIGN(const ModelFiles files, FindModel(model));
  return OpenTokenizer(files);
}

Result<std::string> AnswerLines(LineTokenizer& tokenizer, const TokenizeOptions& options) {
  PINION_ASSIGN(const std::string text, ReadInput(options.input));
  std::string answers;
  size_t number = 0;
  for (const std::string& line : Split(text, '\n')) {
    ++number;
    if (Trim(line).empty()) continue;
    const std::string where = StrCat("line ", number, " of '", options.input, "'");
    const auto request = Json::Parse(line);
    if (!request) return Unexpected(Error{ErrorCode::kUsage, request.error().message}.In(where));
    auto answer = tokenizer.Answer(*request);
    if (!answer) return Unexpected(std::move(answer).error().In(where));
    answers += answer->Dump() + '\n';
  }
  return answers;
}

Status RunTokenize(const TokenizeOptions& options) {
  std::optional<std::string> chat_template;
  if (options.chat_template) {
    PINION_ASSIGN(chat_template, ReadFile(*options.chat_template));
  }
  PINION_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, TokenizerOf(options.folder));
  if (options.output != "-") PINION_TRY(CheckWritable(options.output));
  LineTokenizer lines(*tokenizer, std::move(chat_template), options.now);
  PINION_ASSIGN(const std::string answers, AnswerLines(lines, options));
  if (options.output != "-") return WriteFile(options.output, answers);
  std::fwrite(answers.data(), 1, answers.size(), stdout);
  return {};
}

}  // namespace

void AddTokenize(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<TokenizeOptions>();
  auto* cmd =
      app.add_subcommand("tokenize", "Turn texts into token ids and back, and chats into prompts");
  cmd->add_option("DIR", options->folder,
                  "a folder with tokenizer.json, a .gguf file, preset:NAME, or org/name in the "
                  "Hugging Face cache")
      ->required();
  cmd->add_option("--input", options->input, "JSON lines to read, '-' for standard input")
      ->required();
  cmd->add_option("--output", options->output, "JSON lines to write, '-' for standard output")
      ->capture_default_str();
  cmd->add_option("--chat-template", options->chat_template,
                  "Jinja file to use instead of the model's template");
  cmd->add_option("--now", options->now, "ISO time that templates see, such as 2025-03-04T09:05:07")
      ->check(CheckTime);
  cmd->callback([options, &exit_code] { exit_code = ExitCodeOf(RunTokenize(*options)); });
}

}  // namespace pinion::harness
