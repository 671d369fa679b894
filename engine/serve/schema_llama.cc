// Reads the bodies of llama-server's own endpoints as those of completions, which say the same.

#include "engine/serve/schema_llama.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"
#include "engine/serve/fields.h"

namespace pinion {
namespace {

using Checked = ApiResult<void>;

// Samplers that do not exist here, with the value at which they are off.
struct Switch {
  const char* name;
  double off;
};
constexpr auto kSwitches = std::to_array<Switch>({
    {"adaptive_target", -1},
    {"dry_multiplier", 0},
    {"dynatemp_range", 0},
    {"mirostat", 0},
    {"tfs_z", 1},
    {"top_n_sigma", -1},
    {"typical_p", 1},
    {"xtc_probability", 0},
});

Checked CheckSwitches(const Json& body) {
  for (const Switch& sampler : kSwitches) {
    PINION_ASSIGN(const double value, Get<double>(body, sampler.name, sampler.off));
    if (value != sampler.off)
      return Bad(sampler.name, StrCat("'", sampler.name, "' is ", value, ", but this sampler does ",
                                      "not exist here; want ", sampler.off, " (off)"));
  }
  return {};
}

// -1 and -2: as many as fit. None at all leaves the prompt in the cache.
Checked AddLengthOfLlama(const Json& body, Json& changed) {
  const char* name = Given(body, "n_predict") ? "n_predict" : "max_tokens";
  PINION_ASSIGN(const int most, Get<int>(body, name, -1));
  if (most < -2) return Bad(name, StrCat("'", name, "' is ", most, ", want at least 0, or -1"));
  if (most >= 0) changed.Set("max_tokens", most);
  if (most == 0) changed.Set("echo", true);  // FinishLlama takes it back
  return {};
}

// Pairs of a token and its bias, of which false forbids the token.
Checked AddBias(const Json& body, Json& changed) {
  const Json* given = body.Find("logit_bias");
  if (!given || given->is_null()) return {};
  if (!given->is_array()) {
    changed.Set("logit_bias", *given);
    return {};
  }
  std::vector<Json::Object> bias(1);
  for (const Json& pair : given->array()) {
    const bool is_pair = pair.is_array() && pair.array().size() == 2 && pair.array()[0].is_int();
    if (!is_pair)
      return Bad("logit_bias", StrCat("'logit_bias' holds ", Excerpt(pair),
                                      ", want pairs of a token id and its bias"));
    const Json& value = pair.array()[1];
    const bool forbids = value.is_bool() && !value.boolean();
    bias[0].emplace_back(StrCat(pair.array()[0].integer()), forbids ? Json(-100) : value);
  }
  changed.Set("logit_bias", MergeObjects(std::move(bias)));
  return {};
}

tl::unexpected<ApiError> Both(const char* name, const char* other) {
  return Bad(name,
             StrCat("'", name, "' and '", other, "' both constrain the answer; send one of them"));
}

// Completions' own names of the two are read, too, so that a body may not have both.
Checked AddGrammar(const Json& body, Json& changed) {
  if (Given(body, "json_schema")) {
    if (Given(body, "guided_json")) return Both("json_schema", "guided_json");
    const Json& schema = *body.Find("json_schema");
    if (!schema.is_object() && !schema.is_bool() && !schema.is_string())
      return Bad("json_schema", StrCat("'json_schema' is ", Excerpt(schema), ", want an object"));
    changed.Set("guided_json", schema);
  }
  PINION_ASSIGN(std::string grammar, Get<std::string>(body, "grammar", ""));
  if (grammar.empty()) return {};
  for (const char* other : {"json_schema", "guided_grammar"})
    if (Given(body, other)) return Both("grammar", other);
  changed.Set("guided_grammar", std::move(grammar));
  return {};
}

// `samplers` names those that are on; their order is Pinion's own.
Checked AddSamplers(const Json& body, Json& changed) {
  const Json* list = body.Find("samplers");
  if (!list || list->is_null() || list->is_string()) return {};
  const bool names =
      list->is_array() && std::all_of(list->array().begin(), list->array().end(),
                                      [](const Json& one) { return one.is_string(); });
  if (!names)
    return Bad("samplers", StrCat("'samplers' is ", Excerpt(*list), ", want a list of names"));
  const auto on = [list](const char* name) {
    return std::any_of(list->array().begin(), list->array().end(),
                       [name](const Json& one) { return one.string() == name; });
  };
  if (!on("temperature")) changed.Set("temperature", 1);
  if (!on("top_k")) changed.Set("top_k", 0);
  if (!on("top_p")) changed.Set("top_p", 1);
  if (!on("min_p")) changed.Set("min_p", 0);
  if (on("penalties")) return {};
  changed.Set("repetition_penalty", 1);
  changed.Set("presence_penalty", 0);
  changed.Set("frequency_penalty", 0);
  return {};
}

Checked AddRest(const Json& body, Json& changed) {
  PINION_ASSIGN(const double penalty, Get<double>(body, "repeat_penalty", 1));
  if (!(penalty > 0))
    return Bad("repeat_penalty",
               StrCat("'repeat_penalty' is ", penalty, ", want a number above 0"));
  if (Given(body, "repeat_penalty")) changed.Set("repetition_penalty", penalty);
  PINION_ASSIGN(const int probabilities, Get<int>(body, "n_probs", 0));
  if (probabilities < 0)
    return Bad("n_probs", StrCat("'n_probs' is ", probabilities, ", want at least 0"));
  if (probabilities > 0) changed.Set("logprobs", probabilities);
  PINION_ASSIGN(const bool tokens, Get<bool>(body, "return_tokens", false));
  if (tokens) changed.Set("return_token_ids", true);
  // Negative values are "all" there.
  if (const Json* top = changed.Find("top_k"); top && top->is_int() && top->integer() < 0)
    changed.Set("top_k", 0);
  return AddSamplers(body, changed);
}

// There, too, a line is the least that such a limit leaves: an answer without one goes on.
ApiResult<int64_t> ReadLineLimit(const Json& body) {
  PINION_ASSIGN(const int limit_ms, Get<int>(body, "t_max_predict_ms", 0));
  return std::max(limit_ms, 0) * int64_t{1'000'000};
}

// -1: all.
ApiResult<size_t> ReadPenaltyWindow(const Json& body) {
  PINION_ASSIGN(const int tokens,
                Get<int>(body, "repeat_last_n", static_cast<int>(kLlamaPenaltyWindow)));
  if (tokens < -1)
    return Bad("repeat_last_n", StrCat("'repeat_last_n' is ", tokens,
                                       ", want at least 0 tokens, or -1 for all of them"));
  return tokens < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(tokens);
}

// Those of llama-server's names that the body has, behind completions' own.
std::vector<std::pair<std::string, std::string>> SentNames(const Json& body) {
  constexpr auto kNames = std::to_array<std::pair<const char*, const char*>>({
      {"guided_grammar", "grammar"},
      {"guided_json", "json_schema"},
      {"logprobs", "n_probs"},
      {"max_tokens", "n_predict"},
      {"repetition_penalty", "repeat_penalty"},
      {"return_token_ids", "return_tokens"},
  });
  std::vector<std::pair<std::string, std::string>> sent;
  for (const auto& [shared, own] : kNames)
    if (Given(body, own) && !Given(body, shared)) sent.emplace_back(shared, own);
  return sent;
}

ApiResult<TranslatedBody> TranslateLlama(Api api, const Json& body) {
  PINION_TRY(CheckSwitches(body));
  Json changed = SharedFields(body, api, Api::kCompletions);
  PINION_TRY(AddLengthOfLlama(body, changed));
  PINION_TRY(AddBias(body, changed));
  PINION_TRY(AddGrammar(body, changed));
  PINION_TRY(AddRest(body, changed));
  PINION_ASSIGN(const int64_t line_limit_ns, ReadLineLimit(body));
  PINION_ASSIGN(const size_t penalty_window, ReadPenaltyWindow(body));
  return TranslatedBody{std::move(changed), {}, {}, line_limit_ns, false, penalty_window,
                        SentNames(body)};
}

// Other files, as {"filename", "text"} or as texts.
Checked ReadExtra(const Json& body, FillIn& fill) {
  const Json* extra = body.Find("input_extra");
  if (!extra || extra->is_null()) return {};
  if (!extra->is_array()) return Bad("input_extra", "'input_extra' must be a list");
  for (const Json& file : extra->array()) {
    const std::string where = StrCat("input_extra[", fill.others.size(), "]");
    if (file.is_string()) {
      fill.others.emplace_back("tmp", file.string());
      continue;
    }
    if (!file.is_object()) return Bad(where, StrCat("'", where, "' must be an object"));
    PINION_ASSIGN(std::string name, Get<std::string>(file, "filename", "tmp"));
    PINION_ASSIGN(std::string text, ReadString(file, "text", where));
    fill.others.emplace_back(std::move(name), std::move(text));
  }
  return {};
}

}  // namespace

ApiResult<TranslatedBody> CompletionBodyOfLlama(const Json& body) {
  return TranslateLlama(Api::kLlama, body);
}

ApiResult<TranslatedBody> CompletionBodyOfInfill(const Json& body) {
  PINION_ASSIGN(TranslatedBody translated, TranslateLlama(Api::kInfill, body));
  FillIn fill;
  for (const char* name : {"input_prefix", "input_suffix"})
    if (!Given(body, name)) return Bad(name, StrCat("'", name, "' is missing, want a string"));
  PINION_ASSIGN(std::string prefix, Get<std::string>(body, "input_prefix", ""));
  PINION_ASSIGN(fill.suffix, Get<std::string>(body, "input_suffix", ""));
  PINION_ASSIGN(fill.begun, Get<std::string>(body, "prompt", ""));
  PINION_TRY(ReadExtra(body, fill));
  translated.body.Set("prompt", std::move(prefix));
  translated.fill_in = std::move(fill);
  return translated;
}

void FinishLlama(const ApiDefaults& defaults, GenerationRequest& request) {
  request.echo = false;
  if (!request.max_tokens_given)
    request.params.max_tokens = defaults.max_new_tokens.value_or(std::numeric_limits<int>::max());
  request.max_tokens_name = "n_predict";
}

}  // namespace pinion
