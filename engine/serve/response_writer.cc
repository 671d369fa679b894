#include "engine/serve/response_writer.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "engine/base/strings.h"

namespace pinion {
namespace {

Json ResponseUsage(const Usage& usage) {
  const auto count = [](size_t tokens) { return static_cast<int64_t>(tokens); };
  return Json(Json::Object{
      {"input_tokens", count(usage.prompt_tokens)},
      {"input_tokens_details", Json(Json::Object{{"cached_tokens", count(usage.cached_tokens)},
                                                 {"cache_write_tokens", 0}})},
      {"output_tokens", count(usage.completion_tokens)},
      {"output_tokens_details",
       Json(Json::Object{{"reasoning_tokens", count(usage.reasoning_tokens)}})},
      {"total_tokens", count(usage.prompt_tokens + usage.completion_tokens)}});
}

Json TextPart(std::string text, Json::Array logprobs) {
  return Json(Json::Object{{"type", "output_text"},
                           {"text", std::move(text)},
                           {"annotations", Json::MakeArray()},
                           {"logprobs", Json(std::move(logprobs))}});
}

Json ThoughtPart(std::string text) {
  return Json(Json::Object{{"type", "reasoning_text"}, {"text", std::move(text)}});
}

// Without those of the thoughts, which come first.
Json::Array LogprobsOfText(const ChoicePart& part, const Usage& usage) {
  const Json* content = part.logprobs.Find("content");
  if (!content) return {};
  Json::Array shown = content->array();
  const size_t thoughts = std::min(usage.reasoning_tokens, shown.size());
  shown.erase(shown.begin(), shown.begin() + static_cast<ptrdiff_t>(thoughts));
  return shown;
}

bool WasCut(const ChoicePart& end) { return end.finish_reason == "length"; }

const char* StatusOf(const ChoicePart& end) { return WasCut(end) ? "incomplete" : "completed"; }

std::string SettingsOfResponse(const GenerationRequest& request) {
  const SamplingParams& params = request.params;
  const Json sampling(Json::Object{{"temperature", params.temperature},
                                   {"top_p", params.top_p},
                                   {"presence_penalty", params.presence_penalty},
                                   {"frequency_penalty", params.frequency_penalty}});
  const std::string object = sampling.Dump();
  std::string settings = object.substr(1, object.size() - 2);
  if (!request.shown.empty()) settings += "," + request.shown;
  return settings + R"(,"background":false,"conversation":null,"previous_response_id":null,)"
                    R"("prompt":null,"service_tier":"default","store":false,)"
                    R"("truncation":"disabled")";
}

}  // namespace

ResponseWriter::ResponseWriter(const GenerationRequest& request, ResponseHead head)
    : head_(std::move(head)), settings_(SettingsOfResponse(request)) {}

// The object as it stands, without a tree of the client's JSON.
std::string ResponseWriter::Response(const char* status, const Json::Array& output,
                                     const Usage* usage, const Json& error) const {
  const bool cut = status == std::string_view("incomplete");
  const bool completed = status == std::string_view("completed");
  Json state(Json::Object{
      {"id", head_.id}, {"object", "response"}, {"created_at", head_.created}, {"status", status}});
  state.Set("completed_at", completed ? Json(static_cast<int64_t>(std::time(nullptr))) : Json());
  state.Set("error", error);
  state.Set("incomplete_details",
            cut ? Json(Json::Object{{"reason", "max_output_tokens"}}) : Json());
  state.Set("model", head_.model);
  state.Set("output", Json(output));
  state.Set("usage", usage ? ResponseUsage(*usage) : Json());
  std::string text = state.Dump();
  text.back() = ',';
  return text + settings_ + "}";
}

std::string ResponseWriter::Ended(const ChoicePart& end, const Json::Array& output,
                                  const Usage& usage) const {
  return Response(StatusOf(end), output, &usage, {});
}

// From the answer's own id: the same item has the same id in every event.
std::string ResponseWriter::ItemId(const char* prefix, size_t index) const {
  return StrCat(prefix, head_.id.substr(head_.id.find('_') + 1), "_", index);
}

Json ResponseWriter::TextItem(Kind kind, size_t index, const char* status,
                              Json::Array content) const {
  const bool thinks = kind == Kind::kReasoning;
  Json item(Json::Object{{"id", ItemId(thinks ? "rs_" : "msg_", index)},
                         {"type", thinks ? "reasoning" : "message"},
                         {"status", status}});
  if (thinks)
    item.Set("summary", Json::MakeArray());
  else
    item.Set("role", "assistant");
  item.Set("content", Json(std::move(content)));
  return item;
}

Json ResponseWriter::CallItem(const std::string& call_id, const ToolCall& call, size_t index,
                              const char* status) const {
  return Json(Json::Object{{"id", ItemId("fc_", index)},
                           {"type", "function_call"},
                           {"status", status},
                           {"call_id", call_id},
                           {"name", call.name},
                           {"arguments", call.arguments}});
}

std::string ResponseWriter::Whole(const std::vector<ChoicePart>& choices,
                                  const Usage& usage) const {
  const ChoicePart& part = choices.front();  // a Response has one choice
  const bool ends_in_text = part.calls.empty();
  const char* status = ends_in_text ? StatusOf(part) : "completed";
  Json::Array output;
  if (!part.reasoning.empty()) {
    const bool last = ends_in_text && part.text.empty();
    output.push_back(
        TextItem(Kind::kReasoning, 0, last ? status : "completed", {ThoughtPart(part.reasoning)}));
  }
  if (!part.text.empty() || (output.empty() && part.calls.empty())) {
    Json text = TextPart(part.text, LogprobsOfText(part, usage));
    output.push_back(TextItem(Kind::kText, output.size(), status, {std::move(text)}));
  }
  for (size_t i = 0; i < part.calls.size(); ++i) {
    const bool last = i + 1 == part.calls.size();
    output.push_back(CallItem(CallId(head_.id, part.index, part.first_call + i), part.calls[i],
                              output.size(), last ? StatusOf(part) : "completed"));
  }
  return Ended(part, output, usage);
}

std::string ResponseWriter::Error(const ApiError& error) const { return ToJson(error).Dump(); }

void ResponseWriter::WriteEvent(const char* type, Json::Object fields) {
  Json event(Json::Object{{"type", type}, {"sequence_number", sequence_++}});
  for (auto& field : fields) event.object().push_back(std::move(field));
  events_ += StrCat("event: ", type, "\n", SseEvent(event));
}

void ResponseWriter::WriteState(const char* type, const std::string& response) {
  events_ += StrCat("event: ", type, "\ndata: {\"type\":\"", type,
                    "\",\"sequence_number\":", sequence_++, ",\"response\":", response, "}\n\n");
}

void ResponseWriter::WriteItem(const char* type, Json item) {
  WriteEvent(type,
             {{"output_index", static_cast<int64_t>(output_.size())}, {"item", std::move(item)}});
}

// An event about the text of the item in progress, which has one part.
void ResponseWriter::WriteOfItem(const std::string& type, const char* key, Json value) {
  const bool thinks = open_ == Kind::kReasoning;
  Json::Object fields{{"item_id", ItemId(thinks ? "rs_" : "msg_", output_.size())},
                      {"output_index", static_cast<int64_t>(output_.size())},
                      {"content_index", 0},
                      {key, std::move(value)}};
  if (type.starts_with("response.output_text")) {
    const auto from = type.ends_with("delta") ? static_cast<ptrdiff_t>(told_logprobs_) : 0;
    fields.emplace_back("logprobs", Json(Json::Array(logprobs_.begin() + from, logprobs_.end())));
    told_logprobs_ = logprobs_.size();
  }
  WriteEvent(type.c_str(), std::move(fields));
}

std::string_view ResponseWriter::Begin(size_t, const Json&, const Usage&) {
  events_.clear();
  const std::string response = Response("in_progress", {}, nullptr, {});
  WriteState("response.created", response);
  WriteState("response.in_progress", response);
  return events_;
}

void ResponseWriter::OpenItem(Kind kind) {
  open_ = kind;
  WriteItem("response.output_item.added", TextItem(kind, output_.size(), "in_progress", {}));
  WriteOfItem("response.content_part.added", "part",
              kind == Kind::kReasoning ? ThoughtPart("") : TextPart("", {}));
}

void ResponseWriter::CloseItem(const char* status) {
  if (open_ == Kind::kNone) return;
  if (open_ == Kind::kCall) return CloseCall(status);
  const bool thinks = open_ == Kind::kReasoning;
  WriteOfItem(thinks ? "response.reasoning_text.done" : "response.output_text.done", "text", text_);
  Json part = thinks ? ThoughtPart(std::move(text_))
                     : TextPart(std::move(text_), std::exchange(logprobs_, {}));
  WriteOfItem("response.content_part.done", "part", part);
  Json item = TextItem(open_, output_.size(), status, {std::move(part)});
  WriteItem("response.output_item.done", item);
  output_.push_back(std::move(item));
  open_ = Kind::kNone;
  text_.clear();
  told_logprobs_ = 0;
}

void ResponseWriter::WriteText(Kind kind, const std::string& text) {
  if (text.empty()) return;
  if (open_ != kind) {
    CloseItem("completed");
    OpenItem(kind);
  }
  text_ += text;
  WriteOfItem(
      kind == Kind::kReasoning ? "response.reasoning_text.delta" : "response.output_text.delta",
      "delta", text);
}

// The beginning of a call, or more of its arguments.
void ResponseWriter::WriteCall(const ChoicePart& part, size_t i) {
  const auto& [name, arguments] = part.calls[i];
  if (!name.empty()) {
    CloseItem("completed");
    open_ = Kind::kCall;
    call_ = {name, ""};
    call_id_ = CallId(head_.id, part.index, part.first_call + i);
    WriteItem("response.output_item.added",
              CallItem(call_id_, call_, output_.size(), "in_progress"));
  }
  if (arguments.empty()) return;
  call_.arguments += arguments;
  WriteOfCall("response.function_call_arguments.delta", {{"delta", arguments}});
}

void ResponseWriter::WriteOfCall(const char* type, Json::Object fields) {
  const size_t index = output_.size();
  fields.emplace(fields.begin(), "output_index", static_cast<int64_t>(index));
  fields.emplace(fields.begin(), "item_id", ItemId("fc_", index));
  WriteEvent(type, std::move(fields));
}

void ResponseWriter::CloseCall(const char* status) {
  WriteOfCall("response.function_call_arguments.done",
              {{"name", call_.name}, {"arguments", call_.arguments}});
  Json item = CallItem(call_id_, call_, output_.size(), status);
  WriteItem("response.output_item.done", item);
  output_.push_back(std::move(item));
  open_ = Kind::kNone;
}

// Those of tokens whose text is held back wait for it; those of thoughts are not shown.
void ResponseWriter::TakeLogprobs(const ChoicePart& part) {
  const Json* content = part.logprobs.Find("content");
  if (!content || !part.reasoning.empty()) return;
  logprobs_.insert(logprobs_.end(), content->array().begin(), content->array().end());
}

std::string_view ResponseWriter::Part(const ChoicePart& part, const Usage&) {
  events_.clear();
  // The rest of a call precedes the text behind it.
  const size_t first = !part.calls.empty() && part.calls.front().name.empty() ? 1 : 0;
  if (first > 0) WriteCall(part, 0);
  WriteText(Kind::kReasoning, part.reasoning);
  TakeLogprobs(part);
  WriteText(Kind::kText, part.text);
  for (size_t i = first; i < part.calls.size(); ++i) WriteCall(part, i);
  if (part.finish_reason.empty()) return events_;
  last_.finish_reason = part.finish_reason;
  if (open_ == Kind::kNone && output_.empty()) OpenItem(Kind::kText);  // an answer without words
  CloseItem(StatusOf(last_));
  return events_;
}

std::string_view ResponseWriter::End(const Usage& usage) {
  events_.clear();
  WriteState(WasCut(last_) ? "response.incomplete" : "response.completed",
             Ended(last_, output_, usage));
  return events_;
}

std::string_view ResponseWriter::Fail(const ApiError& error) {
  events_.clear();
  CloseItem("incomplete");
  const Json told(Json::Object{{"code", error.status >= 500 ? "server_error" : "invalid_prompt"},
                               {"message", error.message}});
  WriteState("response.failed", Response("failed", output_, nullptr, told));
  return events_;
}

}  // namespace pinion
