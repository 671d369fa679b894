#include "engine/serve/event_writer.h"

#include <algorithm>
#include <utility>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

void AppendOrNull(std::string& out, const std::string& text) {
  if (text.empty())
    out += "null";
  else
    AppendJsonString(out, text);
}

void AppendJson(std::string& out, const Json& value) {
  if (value.is_null())
    out += "null";
  else
    out += value.Dump();
}

}  // namespace

EventWriter::EventWriter(const ResponseHead& head) : head_(head) {
  event_ = "data: {\"id\":";
  AppendJsonString(event_, head.id);
  event_ += StrCat(",\"object\":\"", head.chat ? "chat.completion.chunk" : "text_completion",
                   "\",\"created\":", head.created, ",\"model\":");
  AppendJsonString(event_, head.model);
  event_ += ",\"choices\":[";
  head_bytes_ = event_.size();
}

std::string_view EventWriter::Role(size_t index, const Json& prompt_token_ids, const Usage* usage) {
  BeginChoice(index);
  event_ += "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}";
  event_ += ",\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}]";
  AppendField("prompt_token_ids", prompt_token_ids);
  return EndChoice(usage);
}

std::string_view EventWriter::Part(const ChoicePart& part, const Usage* usage) {
  const auto begins = [](const ToolCall& call) {
    return !call.name.empty() && !call.arguments.empty();
  };
  if (std::none_of(part.calls.begin(), part.calls.end(), begins)) return OneEvent(part, usage);
  ChoicePart head, rest = part;
  head.index = part.index;
  head.text = std::exchange(rest.text, {});
  head.reasoning = std::exchange(rest.reasoning, {});
  head.first_call = part.first_call;
  for (ToolCall& call : rest.calls) {
    if (call.name.empty())
      ++head.first_call;
    else
      head.calls.push_back({std::exchange(call.name, {}), ""});
  }
  both_ = OneEvent(head, usage);
  return both_ += OneEvent(rest, usage);
}

std::string_view EventWriter::OneEvent(const ChoicePart& part, const Usage* usage) {
  BeginChoice(part.index);
  if (head_.chat) {
    AppendDelta(part);
  } else {
    event_ += "\"text\":";
    AppendJsonString(event_, part.text);
  }
  event_ += ",\"logprobs\":";
  AppendJson(event_, part.logprobs);
  event_ += ",\"finish_reason\":";
  AppendOrNull(event_, part.finish_reason);
  event_ += ",\"stop_reason\":";
  AppendJson(event_, part.stop_reason);
  if (!head_.chat) AppendField("prompt_token_ids", part.prompt_token_ids);
  AppendField("token_ids", part.token_ids);
  event_ += "}]";
  return EndChoice(usage);
}

// A delta without reasoning and calls has its text, be it empty.
void EventWriter::AppendDelta(const ChoicePart& part) {
  const Json::Object parsed = ParsedFields(head_, part, /*delta=*/true);
  event_ += "\"delta\":{";
  const char* before = "";
  if (!part.text.empty() || parsed.empty()) {
    event_ += "\"content\":";
    AppendJsonString(event_, part.text);
    before = ",";
  }
  for (const auto& [name, value] : parsed)
    event_ += StrCat(std::exchange(before, ","), '"', name, "\":", value.Dump());
  event_ += '}';
}

void EventWriter::AppendField(const char* name, const Json& value) {
  if (!value.is_null()) event_ += StrCat(",\"", name, "\":", value.Dump());
}

std::string_view EventWriter::EndChoice(const Usage* usage) {
  return EndEvent(usage ? StrCat(",\"usage\":", ToJson(*usage).Dump()) : "");
}

std::string_view EventWriter::UsageOf(const Usage& usage) {
  event_.resize(head_bytes_);
  return EndEvent(StrCat("],\"usage\":", ToJson(usage).Dump()));
}

void EventWriter::BeginChoice(size_t index) {
  event_.resize(head_bytes_);
  event_ += StrCat("{\"index\":", index, ',');
}

std::string_view EventWriter::EndEvent(std::string_view rest) {
  (event_ += rest) += "}\n\n";
  return event_;
}

}  // namespace pinion
