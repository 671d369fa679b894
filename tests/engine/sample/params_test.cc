#include "engine/sample/params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/engine/sample/draws.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

SamplingParams Read(const std::string& text) {
  SamplingParams params;
  const Status read = ReadSamplingParams(Json::Parse(text).value(), params);
  EXPECT_TRUE(read) << text << ": " << read.error().message;
  return params;
}

std::string RefusalOf(const std::string& text) {
  SamplingParams params;
  const Status read = ReadSamplingParams(Json::Parse(text).value(), params);
  if (read) return "";
  EXPECT_EQ(read.error().code, ErrorCode::kUsage);
  EXPECT_EQ(ToJson(params), ToJson({})) << "a refused object must change nothing";
  return read.error().message;
}

TEST(ReadSamplingParams, ReadsTheApisNames) {
  const SamplingParams params = Read(R"({
    "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1,
    "presence_penalty": -1, "frequency_penalty": 2, "seed": 42, "max_tokens": 99, "min_tokens": 3,
    "ignore_eos": true, "stop_token_ids": [1, 2], "stop": ["a", "b"],
    "include_stop_str_in_output": true, "logprobs": 5, "logit_bias": {"7": -100, "50256": 1.5}})");
  EXPECT_EQ(params.temperature, 0.7);
  EXPECT_EQ(params.top_p, 0.9);
  EXPECT_EQ(params.top_k, 40);
  EXPECT_EQ(params.min_p, 0.05);
  EXPECT_EQ(params.repetition_penalty, 1.1);
  EXPECT_EQ(params.presence_penalty, -1);
  EXPECT_EQ(params.frequency_penalty, 2);
  EXPECT_EQ(params.seed, 42u);
  EXPECT_EQ(params.max_tokens, 99);
  EXPECT_EQ(params.min_tokens, 3);
  EXPECT_TRUE(params.ignore_eos);
  EXPECT_THAT(params.stop_token_ids, ElementsAre(1, 2));
  EXPECT_THAT(params.stop, ElementsAre("a", "b"));
  EXPECT_TRUE(params.include_stop_str_in_output);
  EXPECT_EQ(params.logprobs, 5);
  EXPECT_THAT(params.logit_bias, ElementsAre(Pair(7, -100), Pair(50256, 1.5)));
  EXPECT_TRUE(Validate(params));
}

TEST(ReadSamplingParams, SurvivesARoundTripThroughJson) {
  SamplingParams params = Read(R"({"temperature": 0.3, "seed": -7, "stop": "x", "logprobs": 0,
                                   "logit_bias": {"3": 2}, "top_k": -1, "min_tokens": 2})");
  SamplingParams again;
  ASSERT_TRUE(ReadSamplingParams(ToJson(params), again));
  EXPECT_EQ(ToJson(again), ToJson(params));
  EXPECT_EQ(again.seed, params.seed);
  EXPECT_EQ(again.logprobs, 0);
}

TEST(ReadSamplingParams, IgnoresAbsentNullAndUnknownFields) {
  SamplingParams params;
  params.temperature = 0.5;
  params.max_tokens = 77;
  params.stop = {"end"};
  params.seed = 3;
  ASSERT_TRUE(ReadSamplingParams(
      Json::Parse(R"({"temperature": null, "stop": null, "seed": null, "model": "m", "n": 1,
                      "logprobs": null, "top_logprobs": null, "logit_bias": null})")
          .value(),
      params));
  EXPECT_EQ(params.temperature, 0.5);
  EXPECT_EQ(params.max_tokens, 77);
  EXPECT_THAT(params.stop, ElementsAre("end"));
  EXPECT_EQ(params.seed, 3u);
  EXPECT_EQ(params.logprobs, -1);
}

TEST(ReadSamplingParams, TakesStopAsStringOrList) {
  EXPECT_THAT(Read(R"({"stop": "end"})").stop, ElementsAre("end"));
  EXPECT_THAT(Read(R"({"stop": []})").stop, IsEmpty());
  EXPECT_THAT(RefusalOf(R"({"stop": ["a", 3]})"), HasSubstr("'stop' holds 3"));
  EXPECT_THAT(RefusalOf(R"({"stop": 3})"), HasSubstr("'stop' holds 3"));
}

TEST(ReadSamplingParams, TakesAnySeedOf64BitsAndMinusOneAsNone) {
  EXPECT_EQ(Read(R"({"seed": 9223372036854775807})").seed, 9223372036854775807u);
  EXPECT_EQ(Read(R"({"seed": -9223372036854775808})").seed, uint64_t{1} << 63);
  EXPECT_EQ(Read(R"({"seed": -1})").seed, std::nullopt);
  EXPECT_THAT(RefusalOf(R"({"seed": 1.5})"), HasSubstr("'seed' is 1.5"));
}

TEST(ReadSamplingParams, TakesLogprobsOfBothApis) {
  EXPECT_EQ(Read(R"({"logprobs": true})").logprobs, 0);
  EXPECT_EQ(Read(R"({"logprobs": true, "top_logprobs": 4})").logprobs, 4);
  EXPECT_EQ(Read(R"({"logprobs": false})").logprobs, -1);
  EXPECT_EQ(Read(R"({"logprobs": false, "top_logprobs": 0})").logprobs, -1);
  EXPECT_EQ(Read(R"({"logprobs": 3})").logprobs, 3);
  EXPECT_THAT(RefusalOf(R"({"top_logprobs": 4})"), HasSubstr("set logprobs to true"));
  EXPECT_THAT(RefusalOf(R"({"logprobs": true, "top_logprobs": -2})"), HasSubstr("-2"));
  EXPECT_THAT(RefusalOf(R"({"logprobs": "yes"})"), HasSubstr("'logprobs'"));
}

TEST(ReadSamplingParams, RefusesValuesOfTheWrongType) {
  EXPECT_THAT(RefusalOf(R"({"temperature": "hot"})"), HasSubstr("'temperature' is \"hot\""));
  EXPECT_THAT(RefusalOf(R"({"max_tokens": 1.5})"), HasSubstr("'max_tokens' is 1.5"));
  EXPECT_THAT(RefusalOf(R"({"max_tokens": 3000000000})"), HasSubstr("'max_tokens'"));
  EXPECT_THAT(RefusalOf(R"({"ignore_eos": 1})"), HasSubstr("'ignore_eos'"));
  EXPECT_THAT(RefusalOf(R"({"stop_token_ids": 5})"), HasSubstr("'stop_token_ids' is 5"));
  EXPECT_THAT(RefusalOf(R"({"stop_token_ids": [-5]})"), HasSubstr("holds -5"));
  EXPECT_THAT(RefusalOf(R"({"logit_bias": [1]})"), HasSubstr("'logit_bias' is [1]"));
  EXPECT_THAT(RefusalOf(R"({"logit_bias": {"x": 1}})"), HasSubstr("holds \"x\""));
  EXPECT_THAT(RefusalOf(R"({"logit_bias": {"99999999999": 1}})"), HasSubstr("99999999999"));
  EXPECT_THAT(RefusalOf(R"({"logit_bias": {"4": "much"}})"), HasSubstr("of token 4"));
  EXPECT_THAT(RefusalOf("[]"), HasSubstr("not an array"));
  EXPECT_THAT(RefusalOf(R"({"temperature": 0.9, "top_p": "x"})"), HasSubstr("'top_p'"));
}

struct BadValue {
  const char* says;
  std::function<void(SamplingParams&)> set;
};
void PrintTo(const BadValue& bad, std::ostream* out) { *out << bad.says; }

class BadValues : public ::testing::TestWithParam<BadValue> {};

TEST_P(BadValues, AreRefusedInOneSentence) {
  SamplingParams params;
  ASSERT_TRUE(Validate(params));
  GetParam().set(params);
  const Status status = Validate(params);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  EXPECT_EQ(status.error().message, GetParam().says);
}

using Params = SamplingParams;

INSTANTIATE_TEST_SUITE_P(
    All, BadValues,
    ::testing::Values(
        BadValue{"temperature is -0.1, but must be a finite number from 0 (greedy) on",
                 [](Params& p) { p.temperature = -0.1; }},
        BadValue{"temperature is nan, but must be a finite number from 0 (greedy) on",
                 [](Params& p) { p.temperature = kNan; }},
        BadValue{"temperature is inf, but must be a finite number from 0 (greedy) on",
                 [](Params& p) { p.temperature = kInfinity; }},
        BadValue{"top_p is 0, but must be above 0 and at most 1", [](Params& p) { p.top_p = 0; }},
        BadValue{"top_p is 1.01, but must be above 0 and at most 1",
                 [](Params& p) { p.top_p = 1.01; }},
        BadValue{"top_k is -2, but must be at least 1, or 0 or -1 for all tokens",
                 [](Params& p) { p.top_k = -2; }},
        BadValue{"min_p is 1.5, but must be from 0 to 1", [](Params& p) { p.min_p = 1.5; }},
        BadValue{"repetition_penalty is 0, but must be a finite number above 0 (1: no penalty)",
                 [](Params& p) { p.repetition_penalty = 0; }},
        BadValue{"presence_penalty is 2.1, but must be from -2 to 2",
                 [](Params& p) { p.presence_penalty = 2.1; }},
        BadValue{"frequency_penalty is nan, but must be from -2 to 2",
                 [](Params& p) { p.frequency_penalty = kNan; }},
        BadValue{"max_tokens is 0, but must be at least 1", [](Params& p) { p.max_tokens = 0; }},
        BadValue{"min_tokens is 17, but must be from 0 to max_tokens (16)",
                 [](Params& p) { p.min_tokens = 17; }},
        BadValue{"logprobs is -2, but must be at least 0, or -1 for none",
                 [](Params& p) { p.logprobs = -2; }},
        BadValue{"stop is an empty string, but must be at least one character long",
                 [](Params& p) {
                   p.stop = {"x", ""};
                 }},
        BadValue{"stop_token_ids is [-3], but must be a list of ids from 0 on",
                 [](Params& p) {
                   p.stop_token_ids = {4, -3};
                 }},
        BadValue{"logit_bias is for token -3, but must be for ids from 0 on",
                 [](Params& p) {
                   p.logit_bias = {{-3, 1}};
                 }},
        BadValue{"logit_bias of token 3 is 100.5, but must be from -100 to 100", [](Params& p) {
                   p.logit_bias = {{3, 100.5}};
                 }}));

}  // namespace
}  // namespace pinion
