#include "engine/serve/schema_llama.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "engine/base/strings.h"
#include "engine/serve/fields.h"

namespace pinion {
namespace llama_tests {
namespace {

using testing::HasSubstr;

ApiResult<TranslatedBody> Translate(const Json& body) {
  PINION_TRY(CheckFields(Api::kLlama, body, {}));
  return CompletionBodyOfLlama(body);
}

// The completion's body as text; an error's parameter and sentence.
std::string TranslatedLlama(const std::string& body) {
  const auto read = Translate(*Json::Parse(body));
  return read ? read->body.Dump() : read.error().param + ": " + read.error().message;
}

TEST(SchemaLlama, GivesItsNamesThoseOfCompletions) {
  EXPECT_EQ(TranslatedLlama(R"({"prompt":"hi","n_predict":5,"temperature":0.5,"repeat_penalty":1.1,
                           "n_probs":3,"return_tokens":true,"json_schema":{"type":"object"},
                           "stop":["x"],"stream":true,"seed":7,"top_k":-1,"min_p":null})"),
            R"({"prompt":"hi","temperature":0.5,"stop":["x"],"stream":true,"seed":7,"top_k":0,)"
            R"("max_tokens":5,"guided_json":{"type":"object"},"repetition_penalty":1.1,)"
            R"("logprobs":3,"return_token_ids":true})");
  EXPECT_EQ(TranslatedLlama(R"({"prompt":[1,2],"grammar":"root ::= \"a\"","seed":-1,"n_probs":0})"),
            R"({"prompt":[1,2],"seed":-1,"guided_grammar":"root ::= \"a\""})");
}

TEST(SchemaLlama, IgnoresFieldsThatChangeNoAnswer) {
  EXPECT_EQ(
      TranslatedLlama(R"({"prompt":"hi","cache_prompt":true,"id_slot":1,"n_keep":4,"grammar":"",
                           "t_max_prompt_ms":9,"mirostat":0,"mirostat_tau":5.0,"typical_p":1.0,
                           "dry_multiplier":0.0,"dry_base":1.75,"lora":[],"image_data":[],
                           "min_keep":0,"n_indent":0,"grammar_lazy":false,"penalize_nl":true,
                           "adaptive_target":-1.0,"adaptive_decay":0.9})"),
      R"({"prompt":"hi"})");
}

TEST(SchemaLlama, ReadsLengths) {
  EXPECT_EQ(TranslatedLlama(R"({"n_predict":-1})"), "{}");
  EXPECT_EQ(TranslatedLlama(R"({"max_tokens":7})"), R"({"max_tokens":7})");
  EXPECT_EQ(TranslatedLlama(R"({"max_tokens":7,"n_predict":8})"), R"({"max_tokens":8})");
  EXPECT_THAT(TranslatedLlama(R"({"n_predict":-3})"), HasSubstr("n_predict: "));
}

TEST(SchemaLlama, ReadsALimitOfTimeUnlessItIsOff) {
  const auto limit_ns = [](const std::string& value) {
    return Translate(*Json::Parse(R"({"t_max_predict_ms":)" + value + "}"))->line_limit_ns;
  };
  EXPECT_EQ(limit_ns("9"), 9'000'000);
  for (const char* off : {"0", "-1", "null"}) EXPECT_EQ(limit_ns(off), 0) << off;
  EXPECT_EQ(limit_ns("2147483647"), 2'147'483'647'000'000);
  EXPECT_THAT(TranslatedLlama(R"({"t_max_predict_ms":"soon"})"), HasSubstr("t_max_predict_ms: "));
}

TEST(SchemaLlama, PenalisesTheLast64TokensUnlessToldOtherwise) {
  const auto window = [](const std::string& body) {
    return Translate(*Json::Parse(body))->penalty_window;
  };
  EXPECT_EQ(window("{}"), 64u);
  EXPECT_EQ(window(R"({"repeat_last_n":0})"), 0u);
  EXPECT_EQ(window(R"({"repeat_last_n":7})"), 7u);
  EXPECT_EQ(window(R"({"repeat_last_n":-1})"), std::numeric_limits<size_t>::max());
}

TEST(SchemaLlama, ReadsBiasesInBothForms) {
  EXPECT_EQ(TranslatedLlama(R"({"logit_bias":[[3,1.5],[4,false]]})"),
            R"({"logit_bias":{"3":1.5,"4":-100}})");
  EXPECT_EQ(TranslatedLlama(R"({"logit_bias":{"3":1}})"), R"({"logit_bias":{"3":1}})");
  EXPECT_THAT(TranslatedLlama(R"({"logit_bias":[["word",1]]})"), HasSubstr("logit_bias: "));
}

TEST(SchemaLlama, TurnsSamplersOffThatAreNotNamed) {
  EXPECT_EQ(TranslatedLlama(R"({"samplers":["penalties","temperature","top_k","top_p","min_p"]})"),
            "{}");
  EXPECT_EQ(TranslatedLlama(R"({"samplers":["top_k"],"temperature":0.3,"top_k":5})"),
            R"({"temperature":1,"top_k":5,"top_p":1,"min_p":0,"repetition_penalty":1,)"
            R"("presence_penalty":0,"frequency_penalty":0})");
}

TEST(SchemaLlama, RefusesByName) {
  for (const char* body : {R"({"mirostat":1})",
                           R"({"typical_p":0.5})",
                           R"({"xtc_probability":0.1})",
                           R"({"post_sampling_probs":true})",
                           R"({"lora":[{"id":0}]})",
                           R"({"logprobs":1})",
                           R"({"suffix":"x"})",
                           R"({"input_suffix":"x"})",
                           R"({"n_probs":-1})",
                           R"({"repeat_penalty":0})",
                           R"({"samplers":[1]})",
                           R"({"samplers":5})",
                           R"({"repeat_last_n":-2})",
                           R"({"min_keep":2})",
                           R"({"n_indent":4})",
                           R"({"grammar_lazy":true})",
                           R"({"adaptive_target":0.5})",
                           R"({"guided_whitespace_pattern":"[ ]*"})",
                           R"({"grammar":"root ::= \"a\"","json_schema":{}})",
                           R"({"json_schema":{},"guided_json":{}})",
                           R"({"grammar":"root ::= \"a\"","guided_grammar":"root ::= \"b\""})"}) {
    const std::string name = Json::Parse(body)->object().front().first;
    EXPECT_THAT(TranslatedLlama(body), HasSubstr(StrCat(name, ": '", name, "' "))) << body;
  }
}

TEST(SchemaLlama, ReadsAGapWithItsSurroundings) {
  const auto read = CompletionBodyOfInfill(*Json::Parse(
      R"({"input_prefix":"a","input_suffix":"b","prompt":"c","n_predict":3,
          "input_extra":[{"filename":"f","text":"t"},"u"]})"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->body.Dump(), R"({"max_tokens":3,"prompt":"a"})");
  EXPECT_EQ(read->fill_in->suffix, "b");
  EXPECT_EQ(read->fill_in->begun, "c");
  EXPECT_EQ(read->fill_in->others,
            (std::vector<std::pair<std::string, std::string>>{{"f", "t"}, {"tmp", "u"}}));
  for (const char* body : {R"({"input_prefix":"a"})", R"({"input_suffix":"a"})",
                           R"({"input_prefix":"a","input_suffix":"b","input_extra":[{}]})",
                           R"({"input_prefix":"a","input_suffix":"b","prompt":[1]})"})
    EXPECT_FALSE(CompletionBodyOfInfill(*Json::Parse(body))) << body;
}

TEST(SchemaLlama, HasNoLimitButTheModels) {
  GenerationRequest request;
  request.echo = true;
  FinishLlama({}, request);
  EXPECT_EQ(request.params.max_tokens, std::numeric_limits<int>::max());
  EXPECT_FALSE(request.echo);
  request.max_tokens_given = true;
  request.params.max_tokens = 5;
  FinishLlama({}, request);
  EXPECT_EQ(request.params.max_tokens, 5);
}

}  // namespace
}  // namespace llama_tests
}  // namespace pinion
