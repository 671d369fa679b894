#include "engine/serve/message_writer.h"

#include <utility>

#include "engine/base/strings.h"

namespace pinion {
namespace {

const char* ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

bool EndedByString(const ChoicePart& end) {
  return end.finish_reason == "stop" && end.stop_reason.is_string();
}

Json StopReason(const ChoicePart& end) {
  if (end.finish_reason == "tool_calls") return "tool_use";
  if (end.finish_reason == "length") return "max_tokens";
  return EndedByString(end) ? "stop_sequence" : "end_turn";
}

Json StopSequence(const ChoicePart& end) { return EndedByString(end) ? end.stop_reason : Json(); }

// Tokens that came out of the cache do not count as input tokens here.
Json MessageUsage(const Usage& usage) {
  return Json(Json::Object{
      {"input_tokens", static_cast<int64_t>(usage.prompt_tokens - usage.cached_tokens)},
      {"cache_creation_input_tokens", 0},
      {"cache_read_input_tokens", static_cast<int64_t>(usage.cached_tokens)},
      {"output_tokens", static_cast<int64_t>(usage.completion_tokens)}});
}

Json TextBlock(std::string text) {
  return Json(Json::Object{{"type", "text"}, {"text", std::move(text)}});
}

// The signature tells Anthropic's servers that a thought is theirs: there is no such server here.
Json ThinkingBlock(std::string text) {
  return Json(Json::Object{{"type", "thinking"}, {"thinking", std::move(text)}, {"signature", ""}});
}

// `input` has to be an object. Arguments that are not one, because max_tokens cut them or the model
// wrote no JSON, are its one member, in the form that Anthropic's documentation gives to such
// input: a part of them, or nothing, cannot be taken for the model's intention.
Json InputOf(const std::string& arguments) {
  auto input = Json::Parse(arguments);
  if (input && input->is_object()) return std::move(*input);
  return Json(Json::Object{{"INVALID_JSON", arguments}});
}

}  // namespace

Json MessagesError(const ApiError& error) {
  Json inner(Json::Object{{"type", ErrorType(error.status)}, {"message", error.message}});
  return Json(Json::Object{{"type", "error"}, {"error", std::move(inner)}});
}

Json MessageWriter::Head(Json::Array content, const ChoicePart* end, const Usage& usage) const {
  return Json(Json::Object{{"id", head_.id},
                           {"type", "message"},
                           {"role", "assistant"},
                           {"model", head_.model},
                           {"content", Json(std::move(content))},
                           {"stop_reason", end ? StopReason(*end) : Json()},
                           {"stop_sequence", end ? StopSequence(*end) : Json()},
                           {"usage", MessageUsage(usage)}});
}

Json MessageWriter::Call(const ChoicePart& part, size_t i, Json input) const {
  return Json(Json::Object{{"type", "tool_use"},
                           {"id", CallId(head_.id, part.index, part.first_call + i)},
                           {"name", part.calls[i].name},
                           {"input", std::move(input)}});
}

std::string MessageWriter::Whole(const std::vector<ChoicePart>& choices, const Usage& usage) const {
  const ChoicePart& part = choices.front();  // a Message has one choice
  Json::Array content;
  if (!part.reasoning.empty()) content.push_back(ThinkingBlock(part.reasoning));
  if (!part.text.empty()) content.push_back(TextBlock(part.text));
  for (size_t i = 0; i < part.calls.size(); ++i)
    content.push_back(Call(part, i, InputOf(part.calls[i].arguments)));
  return Head(std::move(content), &part, usage).Dump();
}

std::string MessageWriter::Error(const ApiError& error) const {
  return MessagesError(error).Dump();
}

void MessageWriter::WriteEvent(const char* type, Json::Object fields) {
  fields.emplace(fields.begin(), "type", type);
  events_ += StrCat("event: ", type, "\n", SseEvent(Json(std::move(fields))));
}

std::string_view MessageWriter::Begin(size_t, const Json&, const Usage& usage) {
  events_.clear();
  WriteEvent("message_start", {{"message", Head({}, nullptr, usage)}});
  return events_;
}

void MessageWriter::CloseBlock() {
  if (open_ == Block::kNone) return;
  WriteEvent("content_block_stop", {{"index", blocks_++}});
  open_ = Block::kNone;
}

void MessageWriter::WriteText(Block block, const std::string& text) {
  if (text.empty()) return;
  const bool thinks = block == Block::kThinking;
  if (open_ != block) {
    CloseBlock();
    open_ = block;
    WriteEvent("content_block_start",
               {{"index", blocks_}, {"content_block", thinks ? ThinkingBlock("") : TextBlock("")}});
  }
  Json delta(Json::Object{{"type", thinks ? "thinking_delta" : "text_delta"},
                          {thinks ? "thinking" : "text", text}});
  WriteEvent("content_block_delta", {{"index", blocks_}, {"delta", std::move(delta)}});
}

// The beginning of a call, or more of its arguments.
void MessageWriter::WriteCall(const ChoicePart& part, size_t i) {
  if (!part.calls[i].name.empty()) {
    CloseBlock();
    open_ = Block::kCall;
    WriteEvent("content_block_start",
               {{"index", blocks_}, {"content_block", Call(part, i, Json::MakeObject())}});
  }
  if (part.calls[i].arguments.empty()) return;
  Json delta(Json::Object{{"type", "input_json_delta"}, {"partial_json", part.calls[i].arguments}});
  WriteEvent("content_block_delta", {{"index", blocks_}, {"delta", std::move(delta)}});
}

std::string_view MessageWriter::Part(const ChoicePart& part, const Usage&) {
  events_.clear();
  // The rest of a call precedes the text behind it.
  const size_t first = !part.calls.empty() && part.calls.front().name.empty() ? 1 : 0;
  if (first > 0) WriteCall(part, 0);
  WriteText(Block::kThinking, part.reasoning);
  WriteText(Block::kText, part.text);
  for (size_t i = first; i < part.calls.size(); ++i) WriteCall(part, i);
  if (part.finish_reason.empty()) return events_;
  CloseBlock();
  last_.finish_reason = part.finish_reason;
  last_.stop_reason = part.stop_reason;
  return events_;
}

std::string_view MessageWriter::End(const Usage& usage) {
  events_.clear();
  Json delta(
      Json::Object{{"stop_reason", StopReason(last_)}, {"stop_sequence", StopSequence(last_)}});
  WriteEvent("message_delta", {{"delta", std::move(delta)}, {"usage", MessageUsage(usage)}});
  WriteEvent("message_stop", {});
  return events_;
}

std::string_view MessageWriter::Fail(const ApiError& error) {
  return events_ = StrCat("event: error\n", SseEvent(MessagesError(error)));
}

}  // namespace pinion
