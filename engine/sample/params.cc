#include "engine/sample/params.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr double kMaxBias = 100;

Status Refuse(std::string_view name, const std::string& value, std::string_view allowed) {
  return Fail(ErrorCode::kUsage, StrCat(name, " is ", value, ", but must be ", allowed));
}

// Holds for NaN too: every comparison with it is false.
bool Outside(double value, double low, double high) { return !(value >= low && value <= high); }

// Reads one optional key into `field`, which keeps its value if the key is absent.
template <typename T>
Status Read(const Json& object, std::string_view key, T& field) {
  auto value = Optional<T>(object, key, field);
  if (!value) return Fail(ErrorCode::kUsage, std::move(value).error().message);
  field = *std::move(value);
  return {};
}

const Json* FindSet(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  return value && !value->is_null() ? value : nullptr;
}

Result<int32_t> ReadTokenId(const Json& value, std::string_view key) {
  if (value.is_int() && value.integer() >= 0 &&
      value.integer() <= std::numeric_limits<int32_t>::max())
    return static_cast<int32_t>(value.integer());
  return Fail(ErrorCode::kUsage, StrCat("'", key, "' holds ", Excerpt(value),
                                        ", want token ids: whole numbers from 0 to 2147483647"));
}

Status ReadSeed(const Json& object, SamplingParams& params) {
  const Json* value = FindSet(object, "seed");
  if (!value) return {};
  if (!value->is_int())
    return Fail(ErrorCode::kUsage,
                StrCat("'seed' is ", Excerpt(*value), ", want a whole number of 64 bits"));
  // -1 means "no seed" to vLLM's clients; other negative numbers are seeds like any other.
  if (value->integer() == -1)
    params.seed.reset();
  else
    params.seed = static_cast<uint64_t>(value->integer());
  return {};
}

Status ReadStop(const Json& object, SamplingParams& params) {
  const Json* value = FindSet(object, "stop");
  if (!value) return {};
  if (value->is_string()) {
    params.stop = {value->string()};
    return {};
  }
  std::vector<std::string> stop;
  for (const Json& item : value->is_array() ? value->array() : Json::Array{*value}) {
    if (!item.is_string())
      return Fail(ErrorCode::kUsage,
                  StrCat("'stop' holds ", Excerpt(item), ", want a string or a list of strings"));
    stop.push_back(item.string());
  }
  params.stop = std::move(stop);
  return {};
}

Status ReadStopTokenIds(const Json& object, SamplingParams& params) {
  const Json* value = FindSet(object, "stop_token_ids");
  if (!value) return {};
  if (!value->is_array())
    return Fail(ErrorCode::kUsage,
                StrCat("'stop_token_ids' is ", Excerpt(*value), ", want a list of token ids"));
  std::vector<int32_t> ids;
  for (const Json& item : value->array()) {
    PINION_ASSIGN(const int32_t id, ReadTokenId(item, "stop_token_ids"));
    ids.push_back(id);
  }
  params.stop_token_ids = std::move(ids);
  return {};
}

// An empty list would leave nothing to choose from.
Status ReadAllowedTokenIds(const Json& object, SamplingParams& params) {
  const Json* value = FindSet(object, "allowed_token_ids");
  if (!value) return {};
  if (!value->is_array() || value->array().empty())
    return Fail(ErrorCode::kUsage, StrCat("'allowed_token_ids' is ", Excerpt(*value),
                                          ", want a list of at least one token id"));
  params.allowed_token_ids.clear();
  for (const Json& item : value->array()) {
    PINION_ASSIGN(const int32_t id, ReadTokenId(item, "allowed_token_ids"));
    params.allowed_token_ids.push_back(id);
  }
  return {};
}

// JSON keys are strings, so the API's token ids come as {"50256": -100}.
Status ReadLogitBias(const Json& object, SamplingParams& params) {
  const Json* value = FindSet(object, "logit_bias");
  if (!value) return {};
  if (!value->is_object())
    return Fail(ErrorCode::kUsage, StrCat("'logit_bias' is ", Excerpt(*value),
                                          ", want an object of token ids and numbers"));
  std::vector<std::pair<int32_t, double>> biases;
  for (const auto& [key, bias] : value->object()) {
    const auto number = ParseInt(key, "logit_bias id");
    PINION_ASSIGN(const int32_t id, ReadTokenId(number ? Json(*number) : Json(key), "logit_bias"));
    if (!bias.is_number())
      return Fail(ErrorCode::kUsage, StrCat("'logit_bias' of token ", id, " is ", Excerpt(bias),
                                            ", want a number from -100 to 100"));
    biases.emplace_back(id, bias.number());
  }
  params.logit_bias = std::move(biases);
  return {};
}

// The completions API takes a number, the chat API a boolean beside top_logprobs.
Status ReadLogprobs(const Json& object, SamplingParams& params) {
  const Json* value = FindSet(object, "logprobs");
  const Json* top = FindSet(object, "top_logprobs");
  if (value && value->is_bool())
    params.logprobs = value->boolean() ? 0 : -1;
  else
    PINION_TRY(Read(object, "logprobs", params.logprobs));
  if (!top) return {};
  int count = 0;
  PINION_TRY(Read(object, "top_logprobs", count));
  if (count < 0) return Refuse("top_logprobs", StrCat(count), "at least 0");
  if (count > 0 && params.logprobs < 0)
    return Fail(ErrorCode::kUsage,
                StrCat("top_logprobs is ", count, " without logprobs: set logprobs to true"));
  if (params.logprobs >= 0) params.logprobs = count;
  return {};
}

Status ValidateShape(const SamplingParams& params) {
  if (!(params.temperature >= 0) || std::isinf(params.temperature))
    return Refuse("temperature", StrCat(params.temperature), "a finite number from 0 (greedy) on");
  if (!(params.top_p > 0 && params.top_p <= 1))
    return Refuse("top_p", StrCat(params.top_p), "above 0 and at most 1");
  if (params.top_k < -1)
    return Refuse("top_k", StrCat(params.top_k), "at least 1, or 0 or -1 for all tokens");
  if (Outside(params.min_p, 0, 1)) return Refuse("min_p", StrCat(params.min_p), "from 0 to 1");
  if (!(params.repetition_penalty > 0) || std::isinf(params.repetition_penalty))
    return Refuse("repetition_penalty", StrCat(params.repetition_penalty),
                  "a finite number above 0 (1: no penalty)");
  if (Outside(params.presence_penalty, -2, 2))
    return Refuse("presence_penalty", StrCat(params.presence_penalty), "from -2 to 2");
  if (Outside(params.frequency_penalty, -2, 2))
    return Refuse("frequency_penalty", StrCat(params.frequency_penalty), "from -2 to 2");
  return {};
}

Status ValidateLists(const SamplingParams& params) {
  for (const std::string& text : params.stop)
    if (text.empty()) return Refuse("stop", "an empty string", "at least one character long");
  for (const int32_t id : params.stop_token_ids)
    if (id < 0) return Refuse("stop_token_ids", StrCat("[", id, "]"), "a list of ids from 0 on");
  for (const int32_t id : params.allowed_token_ids)
    if (id < 0) return Refuse("allowed_token_ids", StrCat("[", id, "]"), "a list of ids from 0 on");
  for (const auto& word : params.bad_words_ids)
    if (word.empty() || *std::min_element(word.begin(), word.end()) < 0)
      return Refuse("bad_words", "a list without ids from 0 on", "words of at least one token");
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0) return Refuse("logit_bias", StrCat("for token ", id), "for ids from 0 on");
    if (Outside(bias, -kMaxBias, kMaxBias))
      return Refuse(StrCat("logit_bias of token ", id), StrCat(bias), "from -100 to 100");
  }
  return {};
}

}  // namespace

Status Validate(const SamplingParams& params) {
  PINION_TRY(ValidateShape(params));
  if (params.max_tokens < 1) return Refuse("max_tokens", StrCat(params.max_tokens), "at least 1");
  if (params.min_tokens < 0 || params.min_tokens > params.max_tokens)
    return Refuse("min_tokens", StrCat(params.min_tokens),
                  StrCat("from 0 to max_tokens (", params.max_tokens, ")"));
  if (params.logprobs < -1)
    return Refuse("logprobs", StrCat(params.logprobs), "at least 0, or -1 for none");
  if (params.prompt_logprobs < -1)
    return Refuse("prompt_logprobs", StrCat(params.prompt_logprobs), "at least 0, or -1 for none");
  return ValidateLists(params);
}

std::optional<UnknownId> FindUnknownId(const SamplingParams& params, size_t vocabulary) {
  const auto unknown = [&](int32_t id) { return static_cast<size_t>(id) >= vocabulary; };
  for (const int32_t id : params.stop_token_ids)
    if (unknown(id)) return UnknownId{"stop_token_ids", id};
  for (const auto& [id, bias] : params.logit_bias)
    if (unknown(id)) return UnknownId{"logit_bias", id};
  for (const int32_t id : params.allowed_token_ids)
    if (unknown(id)) return UnknownId{"allowed_token_ids", id};
  for (const auto& word : params.bad_words_ids)
    for (const int32_t id : word)
      if (unknown(id)) return UnknownId{"bad_words", id};
  return {};
}

std::string Describe(const UnknownId& unknown, size_t vocabulary) {
  return StrCat("'", unknown.field, "' names token ", unknown.id, ", want ids below ", vocabulary);
}

Status ReadSamplingParams(const Json& object, SamplingParams& params) {
  if (!object.is_object())
    return Fail(ErrorCode::kUsage,
                StrCat("sampling parameters are a JSON object, not ", object.type_name()));
  SamplingParams read = params;
  PINION_TRY(Read(object, "temperature", read.temperature));
  PINION_TRY(Read(object, "top_p", read.top_p));
  PINION_TRY(Read(object, "top_k", read.top_k));
  PINION_TRY(Read(object, "min_p", read.min_p));
  PINION_TRY(Read(object, "repetition_penalty", read.repetition_penalty));
  PINION_TRY(Read(object, "presence_penalty", read.presence_penalty));
  PINION_TRY(Read(object, "frequency_penalty", read.frequency_penalty));
  PINION_TRY(ReadSeed(object, read));
  PINION_TRY(Read(object, "max_tokens", read.max_tokens));
  PINION_TRY(Read(object, "min_tokens", read.min_tokens));
  PINION_TRY(Read(object, "ignore_eos", read.ignore_eos));
  PINION_TRY(ReadStopTokenIds(object, read));
  PINION_TRY(ReadStop(object, read));
  PINION_TRY(Read(object, "include_stop_str_in_output", read.include_stop_str_in_output));
  PINION_TRY(ReadLogprobs(object, read));
  PINION_TRY(ReadLogitBias(object, read));
  PINION_TRY(ReadAllowedTokenIds(object, read));
  params = std::move(read);  // all or nothing: after an error the caller's are unchanged
  return {};
}

Json ToJson(const SamplingParams& params) {
  Json object = Json::MakeObject();
  object.Set("temperature", params.temperature);
  object.Set("top_p", params.top_p);
  object.Set("top_k", params.top_k);
  object.Set("min_p", params.min_p);
  object.Set("repetition_penalty", params.repetition_penalty);
  object.Set("presence_penalty", params.presence_penalty);
  object.Set("frequency_penalty", params.frequency_penalty);
  // As the signed number that ReadSamplingParams takes.
  object.Set("seed", params.seed ? Json(static_cast<int64_t>(*params.seed)) : Json());
  object.Set("max_tokens", params.max_tokens);
  object.Set("min_tokens", params.min_tokens);
  object.Set("ignore_eos", params.ignore_eos);
  object.Set("stop_token_ids", Json(params.stop_token_ids));
  object.Set("stop", Json(params.stop));
  object.Set("include_stop_str_in_output", params.include_stop_str_in_output);
  object.Set("allowed_token_ids",
             params.allowed_token_ids.empty() ? Json() : Json(params.allowed_token_ids));
  object.Set("logprobs", params.logprobs >= 0 ? Json(params.logprobs) : Json());
  Json::Object bias;  // as many entries as a client likes, so without Set's search
  for (const auto& [id, value] : params.logit_bias) bias.emplace_back(StrCat(id), value);
  object.Set("logit_bias", Json(std::move(bias)));
  return object;
}

}  // namespace pinion
