#include "engine/serve/event_writer.h"

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

EventWriter::EventWriter(const ResponseHead& head) : chat_(head.chat) {
  event_ = "data: {\"id\":";
  AppendJsonString(event_, head.id);
  event_ += StrCat(",\"object\":\"", chat_ ? "chat.completion.chunk" : "text_completion",
                   "\",\"created\":", head.created, ",\"model\":");
  AppendJsonString(event_, head.model);
  event_ += ",\"choices\":[";
  head_bytes_ = event_.size();
}

std::string_view EventWriter::Role(size_t index) {
  BeginChoice(index);
  event_ += "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}";
  return EndEvent(",\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}]");
}

std::string_view EventWriter::Part(const ChoicePart& part) {
  BeginChoice(part.index);
  event_ += chat_ ? "\"delta\":{\"content\":" : "\"text\":";
  AppendJsonString(event_, part.text);
  event_ += chat_ ? "},\"logprobs\":" : ",\"logprobs\":";
  AppendJson(event_, part.logprobs);
  event_ += ",\"finish_reason\":";
  AppendOrNull(event_, part.finish_reason);
  event_ += ",\"stop_reason\":";
  AppendJson(event_, part.stop_reason);
  return EndEvent("}]");
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
