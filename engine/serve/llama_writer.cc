#include "engine/serve/llama_writer.h"

#include <limits>
#include <utility>

#include "engine/base/strings.h"

namespace pinion {
namespace {

int64_t Count(size_t tokens) { return static_cast<int64_t>(tokens); }

// The fields of `timings` for `tokens` that took `seconds`.
void AddTimes(const char* name, size_t tokens, double seconds, Json& timings) {
  const auto number = static_cast<double>(tokens);
  timings.Set(StrCat(name, "_n"), Count(tokens));
  timings.Set(StrCat(name, "_ms"), seconds * 1e3);
  timings.Set(StrCat(name, "_per_token_ms"), tokens > 0 ? seconds * 1e3 / number : 0);
  timings.Set(StrCat(name, "_per_second"), seconds > 0 ? number / seconds : 0);
}

Json Timings(const ChoicePart& part) {
  const Usage& usage = part.usage;
  Json timings(Json::Object{{"cache_n", Count(usage.cached_tokens)}});
  AddTimes("prompt", usage.prompt_tokens - usage.cached_tokens, part.prompt_s, timings);
  AddTimes("predicted", usage.completion_tokens, part.decode_s, timings);
  return timings;
}

bool HasNewLine(const ChoicePart& part) { return part.text.find('\n') != part.text.npos; }

const char* StopType(const ChoicePart& part) {
  if (part.finish_reason == "length") return "limit";
  return part.stop_reason.is_string() ? "word" : "eos";
}

// -1: all tokens.
int ShownWindow(const SamplingParams& params) {
  const size_t seen = params.penalty_window.value_or(std::numeric_limits<size_t>::max());
  return seen <= std::numeric_limits<int>::max() ? static_cast<int>(seen) : -1;
}

Json GenerationSettings(const GenerationRequest& request) {
  const SamplingParams& params = request.params;
  Json settings(Json::Object{{"n_predict", request.prompt_only ? 0 : params.max_tokens},
                             {"temperature", params.temperature},
                             {"top_k", params.top_k},
                             {"top_p", params.top_p},
                             {"min_p", params.min_p},
                             {"repeat_penalty", params.repetition_penalty},
                             {"repeat_last_n", ShownWindow(params)},
                             {"presence_penalty", params.presence_penalty},
                             {"frequency_penalty", params.frequency_penalty},
                             {"ignore_eos", params.ignore_eos},
                             {"stream", request.stream},
                             {"n_probs", params.logprobs > 0 ? params.logprobs : 0}});
  settings.Set("seed", params.seed ? Json(static_cast<int64_t>(*params.seed)) : Json(-1));
  settings.Set("stop", Json(params.stop));
  return settings;
}

}  // namespace

LlamaWriter::LlamaWriter(const GenerationRequest& request, ResponseHead head)
    : head_(std::move(head)), settings_(GenerationSettings(request)) {}

Json LlamaWriter::Text(const ChoicePart& part) const {
  Json text(Json::Object{{"index", Count(part.index)},
                         {"content", part.text},
                         {"tokens", part.token_ids.is_null() ? Json::MakeArray() : part.token_ids},
                         {"stop", false},
                         {"id_slot", -1},
                         {"tokens_predicted", Count(part.usage.completion_tokens)},
                         {"tokens_evaluated", Count(part.usage.prompt_tokens)}});
  if (const Json* rated = part.logprobs.Find("content"))
    text.Set("completion_probabilities", *rated);
  return text;
}

Json LlamaWriter::Last(const ChoicePart& part, bool has_new_line) const {
  Json last = Text(part);
  last.Set("stop", true);
  last.Set("model", head_.model);
  last.Set("generation_settings", settings_);
  last.Set("has_new_line", has_new_line);
  last.Set("truncated", false);
  last.Set("stop_type", StopType(part));
  last.Set("stopping_word", part.stop_reason.is_string() ? part.stop_reason : Json(""));
  last.Set("tokens_cached", Count(part.usage.prompt_tokens + part.usage.completion_tokens));
  last.Set("timings", Timings(part));
  return last;
}

std::string LlamaWriter::Whole(const std::vector<ChoicePart>& choices, const Usage&) const {
  if (choices.size() == 1) return Last(choices[0], HasNewLine(choices[0])).Dump();
  Json list = Json::MakeArray();
  for (const ChoicePart& part : choices) list.Append(Last(part, HasNewLine(part)));
  return list.Dump();
}

std::string LlamaWriter::Error(const ApiError& error) const { return ToJson(error).Dump(); }

std::string_view LlamaWriter::Begin(size_t, const Json&, const Usage&) { return {}; }

std::string_view LlamaWriter::Part(const ChoicePart& part, const Usage&) {
  events_.clear();
  const bool shows = !part.text.empty() || !part.token_ids.is_null() || !part.logprobs.is_null();
  if (shows) events_ += SseEvent(Text(part));
  if (HasNewLine(part)) with_new_line_.insert(part.index);
  if (part.finish_reason.empty()) return events_;
  ChoicePart end = part;
  end.text.clear();
  end.token_ids = end.logprobs = Json();
  events_ += SseEvent(Last(end, with_new_line_.contains(part.index)));
  return events_;
}

// The last object has said so.
std::string_view LlamaWriter::End(const Usage&) { return {}; }

std::string_view LlamaWriter::Fail(const ApiError& error) {
  return events_ = SseEvent(ToJson(error));
}

}  // namespace pinion
