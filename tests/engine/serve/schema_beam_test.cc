// Fields that ask for a beam search, and those that cannot go with it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/fields.h"
#include "engine/serve/schema.h"

namespace pinion {
namespace {

using testing::HasSubstr;

ApiResult<GenerationRequest> ReadSearch(const std::string& text) {
  const Json body = *Json::Parse(text);
  PINION_TRY(CheckFields(Api::kCompletions, body, {.ignores_unknown = true}));
  return ReadCompletionRequest(body, *ReadApiDefaults(std::nullopt));
}

// Each with the field that its error is about.
constexpr std::pair<const char*, const char*> kRefusedSearches[] = {
    {R"("use_beam_search":1)", "use_beam_search"},
    {R"("use_beam_search":true,"length_penalty":11)", "length_penalty"},
    {R"("use_beam_search":true,"length_penalty":"long")", "length_penalty"},
    {R"("use_beam_search":true,"stream":true)", "stream"},
    {R"("use_beam_search":true,"stop":"a")", "stop"},
    {R"("use_beam_search":true,"min_tokens":1)", "min_tokens"},
    {R"("use_beam_search":true,"logit_bias":{"1":1})", "logit_bias"},
    {R"("use_beam_search":true,"allowed_token_ids":[1])", "allowed_token_ids"},
    {R"("use_beam_search":true,"bad_words":["a"])", "bad_words"},
    {R"("use_beam_search":true,"presence_penalty":1)", "presence_penalty"},
    {R"("use_beam_search":true,"frequency_penalty":1)", "frequency_penalty"},
    {R"("use_beam_search":true,"repetition_penalty":2)", "repetition_penalty"},
    {R"("use_beam_search":true,"prompt_logprobs":1)", "prompt_logprobs"},
    {R"("use_beam_search":true,"echo":true,"logprobs":1)", "echo"},
    {R"("use_beam_search":true,"echo":true,"max_tokens":0)", "max_tokens"},
    {R"("use_beam_search":true,"thinking_token_budget":1)", "thinking_token_budget"},
    {R"("use_beam_search":true,"guided_regex":"a")", "guided_regex"},
};

TEST(SchemaBeam, NamesTheFieldItRefuses) {
  for (const auto& [field, name] : kRefusedSearches) {
    const auto request = ReadSearch(StrCat(R"({"prompt":"x",)", field, "}"));
    ASSERT_FALSE(request) << field;
    EXPECT_EQ(request.error().status, 400);
    EXPECT_EQ(request.error().param, name) << request.error().message;
    EXPECT_THAT(request.error().message, HasSubstr(name));
  }
}

TEST(SchemaBeam, ReadsABeamSearchIfOneIsAskedFor) {
  const auto search = ReadSearch(
      R"({"prompt":"x","n":3,"use_beam_search":true,"length_penalty":-0.5,"temperature":0.3,
          "repetition_penalty":1,"early_stopping":true})");
  ASSERT_TRUE(search) << search.error().message;
  ASSERT_TRUE(search->beam);
  EXPECT_EQ(search->beam->length_penalty, -0.5);
  EXPECT_EQ(search->n, 3);
  EXPECT_EQ(ReadSearch(R"({"prompt":"x","use_beam_search":true})")->beam->length_penalty, 1);
  EXPECT_FALSE(ReadSearch(R"({"prompt":"x","length_penalty":99,"use_beam_search":false})")->beam);
}

}  // namespace
}  // namespace pinion
