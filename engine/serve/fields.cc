#include "engine/serve/fields.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

struct UnsupportedField {
  std::string_view name;
  const char* advice;
};
constexpr auto kUnsupported = std::to_array<UnsupportedField>({
    {"use_beam_search", "use n with a temperature above 0"},
    {"audio", "send text"},
    {"functions", "use tools"},
    {"function_call", "use tools"},
    {"chat_template", "put the template into the model's folder"},
});

// Read by both endpoints, by ReadSamplingParams among others.
constexpr auto kRead = std::to_array<std::string_view>({
    "add_special_tokens",
    "allowed_token_ids",
    "bad_words",
    "best_of",
    "cache_salt",
    "frequency_penalty",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "ignore_eos",
    "include_stop_str_in_output",
    "logit_bias",
    "logprobs",
    "max_tokens",
    "min_p",
    "min_tokens",
    "model",
    "n",
    "presence_penalty",
    "priority",
    "prompt_logprobs",
    "repetition_penalty",
    "response_format",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "seed",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop",
    "stop_token_ids",
    "stream",
    "stream_options",
    "structured_outputs",
    "temperature",
    "timeout",
    "top_k",
    "top_logprobs",
    "top_p",
    "truncate_prompt_tokens",
    "truncation_side",
});
constexpr auto kReadByCompletions = std::to_array<std::string_view>({"echo", "prompt", "suffix"});
constexpr auto kReadByChat = std::to_array<std::string_view>({
    "add_generation_prompt",
    "chat_template_kwargs",
    "continue_final_message",
    "documents",
    "include_reasoning",
    "max_completion_tokens",
    "messages",
    "parallel_tool_calls",
    "reasoning_effort",
    "tool_choice",
    "tools",
});

// They name, bill, route, speed up or belong to what is refused anyway: the text stays the same.
constexpr auto kHarmless = std::to_array<std::string_view>({
    "early_stopping",             // of beam search
    "guided_decoding_backend",    // of guided_*
    "guided_whitespace_pattern",  // of guided_json
    "length_penalty",             // of beam search
    "media_io_kwargs",            // of images and sound
    "metadata",
    "mm_payload",
    "mm_processor_kwargs",
    "prediction",  // a guess at the answer, to save time
    "prompt_cache_key",
    "prompt_cache_retention",
    "request_id",
    "return_mm_kwargs",
    "return_token_offsets",  // of vLLM's render endpoints
    "routed_experts_prompt_start",
    "safety_identifier",
    "service_tier",
    "session_id",
    "store",
    "stream_interval",  // tokens in one event of a stream
    "user",
});

// Whether a value has no effect: null, false, 0, "" or an empty list or object.
bool IsNothing(const Json& value) {
  if (value.is_bool()) return !value.boolean();
  if (value.is_number()) return value.number() == 0;
  if (value.is_string()) return value.string().empty();
  if (value.is_array()) return value.array().empty();
  if (value.is_object()) return value.object().empty();
  return true;
}

template <typename List>
bool SortedHolds(const List& sorted, std::string_view name) {
  return std::binary_search(sorted.begin(), sorted.end(), name);
}

bool IsUnsupported(std::string_view name) {
  return std::any_of(kUnsupported.begin(), kUnsupported.end(),
                     [name](const UnsupportedField& field) { return field.name == name; });
}

bool IsKnown(std::string_view name, bool chat) {
  return SortedHolds(kRead, name) || SortedHolds(kHarmless, name) || IsUnsupported(name) ||
         (chat ? SortedHolds(kReadByChat, name) : SortedHolds(kReadByCompletions, name));
}

static_assert(std::is_sorted(kRead.begin(), kRead.end()));
static_assert(std::is_sorted(kReadByCompletions.begin(), kReadByCompletions.end()));
static_assert(std::is_sorted(kReadByChat.begin(), kReadByChat.end()));
static_assert(std::is_sorted(kHarmless.begin(), kHarmless.end()));

// Fields that `known` does not know: their number, or the first one's refusal.
template <typename Known>
ApiResult<size_t> CountOthers(const Json& body, bool ignore, const Known& known) {
  size_t unknown = 0;
  if (!body.is_object()) return unknown;  // refused when it is read
  for (const auto& [name, value] : body.object()) {
    if (value.is_null() || known(name)) continue;
    ++unknown;
    if (ignore) continue;
    const std::string shown = name.substr(0, 100);
    return Unexpected({400,
                       StrCat("'", shown, "' is not a field of this endpoint and might change the ",
                              "answer; leave it out, or start the server with "
                              "--ignore-unknown-fields"),
                       shown, kUnknownField});
  }
  return unknown;
}

}  // namespace

ApiResult<void> RefuseUnsupported(const Json& body) {
  for (const auto& field : kUnsupported) {
    const Json* value = body.Find(field.name);
    if (value && !IsNothing(*value))
      return Unexpected({400, StrCat("'", field.name, "' is not supported; ", field.advice),
                         std::string(field.name), ""});
  }
  return {};
}

ApiResult<size_t> CountUnknown(const Json& body, bool chat, bool ignore) {
  return CountOthers(body, ignore, [chat](std::string_view name) { return IsKnown(name, chat); });
}

ApiResult<size_t> CountUnknownBeside(const Json& body, std::span<const std::string_view> read,
                                     bool ignore) {
  return CountOthers(body, ignore, [read](std::string_view name) {
    return SortedHolds(kHarmless, name) || std::find(read.begin(), read.end(), name) != read.end();
  });
}

}  // namespace pinion
