#include "engine/run/prompts.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/text/chat.h"

namespace pinion {
namespace {

Result<std::string> ReadAll(const std::string& path) {
  if (path != "-") return ReadFile(path);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

Result<std::vector<int32_t>> ReadIds(const Json& value) {
  if (!value.is_array())
    return Fail(ErrorCode::kUsage, StrCat("'input_ids' is ", value.type_name(), ", want a list"));
  std::vector<int32_t> ids;
  for (const Json& id : value.array()) {
    if (!id.is_int() || id.integer() < 0 || id.integer() > std::numeric_limits<int32_t>::max())
      return Fail(ErrorCode::kUsage,
                  StrCat("'input_ids' holds ", id.Dump(), ", want token ids >= 0"));
    ids.push_back(static_cast<int32_t>(id.integer()));
  }
  return ids;
}

class Encoder {
 public:
  explicit Encoder(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  Result<std::vector<int32_t>> Encode(const Json& line) {
    if (const Json* ids = line.Find("input_ids")) return ReadIds(*ids);
    const Json* text = line.Find("text");
    const Json* messages = line.Find("messages");
    if (!text && !messages)
      return Fail(ErrorCode::kUsage, "the line has none of 'text', 'input_ids' and 'messages'");
    if (!tokenizer_)
      return Fail(ErrorCode::kNotFound, "the model has no tokenizer; give 'input_ids'");
    if (messages) return EncodeChat(line, *messages);
    if (!text->is_string())
      return Fail(ErrorCode::kUsage, StrCat("'text' is ", text->type_name(), ", want a string"));
    return tokenizer_->Encode(text->string(), true);
  }

 private:
  Result<std::vector<int32_t>> EncodeChat(const Json& line, const Json& messages) {
    const Json* tools = line.Find("tools");
    const auto& chosen =
        tools && !tools->is_null() ? tokenizer_->tool_template() : tokenizer_->chat_template();
    if (!chosen)
      return Fail(ErrorCode::kUnsupported, "the model has no chat template; give 'text'");
    if (!renderer_) {
      PINION_ASSIGN(renderer_, ChatRenderer::Start());
    }
    ChatRequest request;
    request.chat_template = *chosen;
    request.messages = messages;
    if (tools) request.tools = *tools;
    request.kwargs = Json::MakeObject();
    for (const auto& [name, token] : tokenizer_->special_tokens()) request.kwargs.Set(name, token);
    request.kwargs.Set("add_generation_prompt", true);
    if (const Json* kwargs = line.Find("kwargs"); kwargs && kwargs->is_object())
      for (const auto& [name, value] : kwargs->object()) request.kwargs.Set(name, value);
    PINION_ASSIGN(const std::string rendered, renderer_->Render(request));
    return tokenizer_->Encode(rendered, false);
  }

  const Tokenizer* tokenizer_;
  std::unique_ptr<ChatRenderer> renderer_;
};

}  // namespace

Result<std::vector<JsonLine>> ReadNumberedLines(const std::string& path) {
  PINION_ASSIGN(const std::string text, ReadAll(path));
  std::vector<JsonLine> lines;
  size_t number = 0;
  for (const std::string& line : Split(text, '\n')) {
    ++number;
    if (Trim(line).empty()) continue;
    auto parsed = Json::Parse(line);
    if (!parsed) return Unexpected(std::move(parsed).error().In(StrCat(path, ", line ", number)));
    if (!parsed->is_object())
      return Fail(ErrorCode::kCorrupt,
                  StrCat(path, ", line ", number, ": ", parsed->type_name(), ", want an object"));
    lines.push_back({number, *std::move(parsed)});
  }
  return lines;
}

Result<std::vector<Json>> ReadJsonLines(const std::string& path) {
  PINION_ASSIGN(std::vector<JsonLine> numbered, ReadNumberedLines(path));
  std::vector<Json> lines;
  for (JsonLine& line : numbered) lines.push_back(std::move(line.value));
  return lines;
}

Result<std::vector<Json>> ReadPromptFile(const std::string& path) {
  if (!path.ends_with(".txt")) return ReadJsonLines(path);
  PINION_ASSIGN(std::string text, ReadFile(path));
  return std::vector<Json>{Json::Object{{"text", std::move(text)}}};
}

Status WriteJsonLines(const std::string& path, const std::vector<Json>& lines) {
  std::string text;
  for (const Json& line : lines) text += line.Dump() + "\n";
  if (path != "-") return WriteFile(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return Fail(ErrorCode::kIo, "cannot write to standard output");
  return {};
}

Result<JsonLinesFile> JsonLinesFile::Create(const std::string& path) {
  JsonLinesFile file;
  file.path_ = path;
  file.file_.reset(path == "-" ? stdout : std::fopen(path.c_str(), "we"));
  if (!file.file_)
    return Fail(ErrorCode::kIo, StrCat("cannot create '", path, "': ", std::strerror(errno)));
  return file;
}

Status JsonLinesFile::Append(const Json& line) {
  const std::string text = line.Dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
      std::fflush(file_.get()) == 0)
    return {};
  return Fail(ErrorCode::kIo, path_ == "-"
                                  ? std::string("cannot write to standard output")
                                  : StrCat("cannot write '", path_, "': ", std::strerror(errno)));
}

Result<std::vector<Prompt>> EncodePrompts(std::vector<Json> lines, const Tokenizer* tokenizer) {
  Encoder encoder(tokenizer);
  std::vector<Prompt> prompts;
  for (Json& line : lines) {
    Prompt prompt;
    auto ids = encoder.Encode(line);
    if (ids)
      prompt.ids = *std::move(ids);
    else
      prompt.error = Unexpected(std::move(ids).error());
    prompt.line = std::move(line);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::vector<Prompt> CutWindows(const std::vector<int32_t>& ids, size_t window) {
  std::vector<Prompt> prompts;
  for (size_t at = 0; at + window < ids.size() || prompts.empty(); at += window) {
    const auto begin = ids.begin() + static_cast<ptrdiff_t>(at);
    const size_t count = std::min(window + 1, ids.size() - at);
    prompts.push_back({{begin, begin + static_cast<ptrdiff_t>(count)}, Json::MakeObject(), {}});
  }
  return prompts;
}

}  // namespace pinion
