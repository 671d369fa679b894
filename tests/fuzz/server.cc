#include "tests/fuzz/server.h"

#include <cstdio>

#include "engine/base/check.h"
#include "engine/text/hf_tokenizer.h"

namespace pinion::fuzz {
namespace {

constexpr size_t kChoiceTokens = 2000;

// Every byte is a token; so are a few words and the special "<end>".
std::unique_ptr<HfTokenizer> MakeTokens() {
  Json vocabulary = Json::MakeObject();
  Json::Object& tokens = vocabulary.object();
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    tokens.emplace_back(name, byte);
  }
  for (const char* token : {"a", "b", "c", "ab", "abc"})
    tokens.emplace_back(token, static_cast<int>(tokens.size()));
  const Json model = Json::Object{{"type", "BPE"},
                                  {"byte_fallback", true},
                                  {"vocab", std::move(vocabulary)},
                                  {"merges", Json::Array{"a b", "ab c"}}};
  Json::Array added = {Json(Json::Object{{"content", "<end>"}, {"special", true}})};
  for (const char* mark : {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"})  // for /infill
    added.push_back(Json(Json::Object{{"content", mark}, {"special", true}}));
  const Json json = Json::Object{{"model", model},
                                 {"decoder", Json::Object{{"type", "ByteFallback"}}},
                                 {"added_tokens", Json(std::move(added))}};
  const Json config = Json::Object{{"eos_token", "<end>"}, {"chat_template", "(see fuzz_chat)"}};
  auto made = HfTokenizer::Make(json, config);
  CHECK(made) << made.error().message;
  return std::move(*made);
}

ServedModel MakeModel(const HfTokenizer& tokens) {
  ServedModel model;
  model.name = "m";
  model.vocabulary = tokens.vocabulary_size();
  model.defaults.params.temperature = 1;
  model.output = *ChooseOutputFormat("hermes", "qwen3", std::nullopt);
  return model;
}

FrontLimits MakeLimits() {
  FrontLimits limits;
  limits.max_choice_tokens = kChoiceTokens;
  limits.max_logit_bias = limits.max_stop = limits.max_stop_token_ids = 8;
  limits.max_allowed_token_ids = limits.max_bad_words = 8;
  return limits;
}

}  // namespace

const Preparer& FrontEnd() {
  static const auto tokens = MakeTokens();
  static const ServedModel model = MakeModel(*tokens);
  static const Preparer preparer(model, *tokens, MakeLimits());
  return preparer;
}

HttpRequest RequestOf(std::string_view body, const std::shared_ptr<MemoryBudget>& memory) {
  HttpRequest request;
  request.body = body;
  auto share = MemoryShare::Take(memory, "client", body.size());
  CHECK(share) << "the budget is too small for the fuzzer's bodies";
  request.memory = std::move(*share);
  return request;
}

void CheckRefusal(const ApiError& error) {
  CHECK(error.status == 400 || error.status == 404 || error.status == 413 || error.status == 503)
      << error.status;
  CHECK(!error.message.empty());
  CHECK(Json::Parse(ToJson(error).Dump())) << "an answer that is not JSON";
}

void CheckPrepared(const ApiResult<Prepared>& prepared) {
  if (!prepared) return CheckRefusal(prepared.error());
  const GenerationRequest& request = prepared->request;
  CHECK(!prepared->prompts.empty() && request.n >= 1);
  CHECK(prepared->prompts.size() == prepared->primed.size());
  CHECK(prepared->echoes.size() == (request.echo ? prepared->prompts.size() : 0));
  CHECK(Validate(request.params)) << "parameters that the sampler does not take";
  size_t tokens = 0;
  for (const auto& prompt : prepared->prompts) {
    const size_t most = prompt.size() + static_cast<size_t>(request.params.max_tokens);
    CHECK(!prompt.empty() && most <= kModelTokens && most - 1 <= kKvTokens) << most;
    tokens += prompt.size();
  }
  CHECK(tokens * static_cast<size_t>(request.n) <= kChoiceTokens);
}

}  // namespace pinion::fuzz
