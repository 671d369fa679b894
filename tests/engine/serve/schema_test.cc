#include "engine/serve/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/serve/schema_bodies.h"

namespace pinion {
namespace {

using testing::HasSubstr;

TEST(Schema, OverridesCountMoreThanTheModelsDefaults) {
  const auto config = Json::Parse(R"({"temperature":0.3,"top_k":5,"max_new_tokens":9})");
  const auto read = ReadApiDefaults(*config, {{"temperature", 0.5}, {"max_new_tokens", 7}});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->params.temperature, 0.5);
  EXPECT_EQ(read->params.top_k, 5);
  EXPECT_EQ(read->max_new_tokens, 7);
  EXPECT_EQ(ReadApiDefaults(std::nullopt, {{"top_k", 4}})->params.top_k, 4);
  EXPECT_FALSE(ReadApiDefaults(*config, {{"top_p", 7}}));
}

TEST(Schema, ReadsTextsToTokenizeByEitherName) {
  const auto read = [](const char* body) { return ReadTokenizeRequest(*Json::Parse(body)); };
  EXPECT_EQ(read(R"({"content":"x"})")->prompt, "x");
  EXPECT_FALSE(read(R"({"content":"x"})")->add_special_tokens);
  EXPECT_TRUE(read(R"({"content":"x","add_special":true})")->add_special_tokens);
  EXPECT_TRUE(read(R"({"prompt":"x"})")->add_special_tokens);
  EXPECT_FALSE(read(R"({"prompt":"x","add_special_tokens":false})")->add_special_tokens);
  for (const char* bad : {R"({"content":"x","prompt":"y"})", R"({"content":["x"]})",
                          R"({"content":"x","parse_special":false})", "{}"})
    EXPECT_FALSE(read(bad)) << bad;
}

TEST(Schema, TakesEveryFormOfPrompt) {
  const auto count = [](const char* prompt) {
    auto request = Completion(std::string("{\"prompt\":") + prompt + "}");
    return request ? static_cast<int>(request->prompts.size()) : -1;
  };
  EXPECT_EQ(count("\"text\""), 1);
  EXPECT_EQ(count("[\"a\",\"b\",\"c\"]"), 3);
  EXPECT_EQ(count("[1,2,3]"), 1);
  EXPECT_EQ(count("[[1,2],[3]]"), 2);
  for (const char* bad : {"null", "[]", "7", "{}", "[1,\"a\"]", "[-1]", "[1.5]", "[[\"a\"]]",
                          "[null]", "[99999999999]"})
    EXPECT_EQ(count(bad), -1) << bad;
}

TEST(Schema, UsesOpenAisDefaultsAndTheCheckpoints) {
  auto plain = Completion("{\"prompt\":\"x\"}");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->params.temperature, 1);
  EXPECT_EQ(plain->params.max_tokens, 16);
  EXPECT_FALSE(plain->max_tokens_given);
  const ApiDefaults defaults = Defaults(
      R"({"temperature":0.6,"top_p":0.9,"top_k":20,"repetition_penalty":1.1,"max_new_tokens":8})");
  auto tuned = ReadCompletionRequest(*Json::Parse(R"({"prompt":"x","top_p":0.5})"), defaults);
  ASSERT_TRUE(tuned);
  EXPECT_EQ(tuned->params.temperature, 0.6);
  EXPECT_EQ(tuned->params.top_p, 0.5);
  EXPECT_EQ(tuned->params.top_k, 20);
  EXPECT_EQ(tuned->params.repetition_penalty, 1.1);
  EXPECT_EQ(tuned->params.max_tokens, 8);
}

TEST(Schema, ReadsVllmsExtras) {
  auto request = Completion(R"({"prompt":"x","top_k":5,"min_p":0.1,"repetition_penalty":1.2,
      "min_tokens":2,"ignore_eos":true,"stop_token_ids":[7],"include_stop_str_in_output":true,
      "skip_special_tokens":false,"add_special_tokens":false,"stop":"end","logprobs":2,"seed":9,
      "n":3,"logit_bias":{"5":-100},"unknown_field":{"a":1},"user":"me"})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->params.top_k, 5);
  EXPECT_EQ(request->params.min_tokens, 2);
  EXPECT_TRUE(request->params.ignore_eos);
  EXPECT_EQ(request->params.stop_token_ids, std::vector<int32_t>{7});
  EXPECT_EQ(request->params.stop, std::vector<std::string>{"end"});
  EXPECT_TRUE(request->params.include_stop_str_in_output);
  EXPECT_FALSE(request->skip_special_tokens);
  EXPECT_FALSE(request->add_special_tokens);
  EXPECT_EQ(request->params.logprobs, 2);
  EXPECT_EQ(request->n, 3);
}

TEST(Schema, TreatsNullAsAbsent) {
  auto request = Completion(
      R"({"prompt":"x","temperature":null,"max_tokens":null,"stop":null,"seed":null,"n":null,
          "stream":null,"stream_options":null,"logprobs":null,"best_of":null,"suffix":null,
          "response_format":null,"logit_bias":null,"echo":null,"model":null})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->params.temperature, 1);
  EXPECT_FALSE(request->max_tokens_given);
}

// Each with the field that its error is about.
constexpr std::pair<const char*, const char*> kRefusedFields[] = {
    {R"("response_format":{"type":"yaml"})", "response_format"},
    {R"("response_format":{"type":"json_schema"})", "response_format"},
    {R"("response_format":{"type":"json_schema","json_schema":{"schema":3}})", "response_format"},
    {R"("guided_json":[1])", "guided_json"},
    {R"("guided_regex":{"a":1})", "guided_regex"},
    {R"("guided_regex":"a+","guided_choice":["a"])", "guided_choice"},
    {R"("structured_outputs":{"choice":"a"})", "structured_outputs"},
    {R"("structured_outputs":{"regex":"a","choice":["a"]})", "structured_outputs"},
    {R"("structured_outputs":{"whitespace_pattern":" "})", "structured_outputs"},
    {R"("best_of":3)", "best_of"},
    {R"("suffix":3)", "suffix"},
    {R"("suffix":"end","echo":true)", "suffix"},
    {R"("bad_words":"bad")", "bad_words"},
    {R"("bad_words":[" "])", "bad_words"},
    {R"("cache_salt":"")", "cache_salt"},
    {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens"},
    {R"("truncation_side":"middle")", "truncation_side"},
    {R"("spaces_between_special_tokens":1)", "spaces_between_special_tokens"},
    {R"("prompt_logprobs":-1)", "prompt_logprobs"},
    {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs"},
    {R"("n":0)", "n"},
    {R"("n":"two")", "n"},
    {R"("stream":"yes")", "stream"},
    {R"("stream_options":{"include_usage":true})", "stream_options"},
    {R"("echo":true,"logprobs":1,"stream":true)", "echo"},
    {R"("seed":9223372036854775808)", "seed"},
    {R"("temperature":-1)", "temperature"},
    {R"("logit_bias":{"x":1})", "logit_bias"},
    {R"("logit_bias":{"1":"x"})", "logit_bias"},
    {R"("stop_token_ids":[-1])", "stop_token_ids"},
    {R"("logprobs":"many")", "logprobs"},
};

TEST(Schema, NamesTheFieldItRefuses) {
  for (const auto& [field, name] : kRefusedFields) {
    auto request = Completion(std::string("{\"prompt\":\"x\",") + field + "}");
    ASSERT_FALSE(request) << field;
    EXPECT_EQ(request.error().status, 400);
    EXPECT_EQ(request.error().param, name) << request.error().message;
    EXPECT_THAT(request.error().message, HasSubstr(name));
  }
}

TEST(Schema, ReadsConstraintsOnTheAnswer) {
  const std::pair<const char*, Grammar> kCases[] = {
      {R"("response_format":{"type":"json_object"})", {"json", R"({"type": "object"})"}},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"a":1}}})",
       {"json", R"({"a":1})"}},
      {R"("guided_json":{"a":1})", {"json", R"({"a":1})"}},
      {R"("guided_json":"{}")", {"json", "{}"}},
      {R"("guided_regex":"a+")", {"regex", "a+"}},
      {R"("guided_choice":["a","b"])", {"choice", R"(["a","b"])"}},
      {R"("guided_grammar":"root ::= 1")", {"grammar", "root ::= 1"}},
      {R"("structured_outputs":{"json":{"a":1},"regex":null})", {"json", R"({"a":1})"}},
      {R"("structured_outputs":{"json_object":true})", {"json", R"({"type": "object"})"}},
      {R"("structured_outputs":{"structural_tag":"{}"})", {"structural_tag", "{}"}},
  };
  for (const auto& [field, grammar] : kCases) {
    auto request = Completion(std::string("{\"prompt\":\"x\",") + field + "}");
    ASSERT_TRUE(request) << field << request.error().message;
    ASSERT_TRUE(request->grammar) << field;
    EXPECT_EQ(request->grammar->kind, grammar.kind);
    EXPECT_EQ(request->grammar->text, grammar.text);
  }
  for (const char* free : {R"("response_format":{"type":"text"})", R"("guided_json":null)",
                           R"("structured_outputs":{"json_object":false})"})
    EXPECT_FALSE(Completion(std::string("{\"prompt\":\"x\",") + free + "}")->grammar) << free;
}

TEST(Schema, RefusesSamplingOutOfRange) {
  for (const char* field :
       {R"("temperature":-1)", R"("temperature":"hot")", R"("top_p":0)", R"("max_tokens":0)",
        R"("max_tokens":1.5)", R"("stop":[""])", R"("presence_penalty":3)", R"("min_tokens":50)",
        R"("seed":1.5)", R"("logit_bias":{"x":1})", R"("allowed_token_ids":"5")",
        R"("allowed_token_ids":[])", R"("allowed_token_ids":[-1])",
        R"("max_tokens":99999999999)"}) {
    auto request = Completion(std::string("{\"prompt\":\"x\",") + field + "}");
    EXPECT_FALSE(request) << field;
  }
  EXPECT_TRUE(Completion(R"({"prompt":"x","response_format":{"type":"text"},"best_of":1})"));
}

TEST(Schema, ReadsVllmsFields) {
  auto request = Completion(
      R"({"prompt":"x","allowed_token_ids":[4,5],"bad_words":["a","b c"],"cache_salt":"s","priority":2,
          "truncate_prompt_tokens":-1,"truncation_side":"right","return_token_ids":true,
          "return_tokens_as_token_ids":true,"stream":true,
          "stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->params.allowed_token_ids, (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(request->bad_words, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(request->cache_salt, "s");
  EXPECT_EQ(request->truncate_to, -1);
  EXPECT_FALSE(request->truncate_left);
  EXPECT_TRUE(request->return_token_ids && request->tokens_as_ids && request->usage_in_parts);
  auto chat = Chat(R"({"messages":[{"role":"user","content":"x"}],"documents":[{"text":"d"}],
                       "reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true}})");
  ASSERT_TRUE(chat) << chat.error().message;
  const Json& kwargs = chat->conversation.template_kwargs;
  EXPECT_EQ(kwargs.Find("documents")->Dump(), R"([{"text":"d"}])");
  EXPECT_EQ(kwargs.Find("reasoning_effort")->string(), "none");
  EXPECT_TRUE(kwargs.Find("enable_thinking")->boolean()) << "the client's own goes before";
}

TEST(Schema, RatesThePromptForEchoAndPromptLogprobs) {
  const auto rated = [](const std::string& fields) {
    auto request = Completion("{\"prompt\":\"x\"" + fields + "}");
    EXPECT_TRUE(request) << request.error().message;
    return request ? request->params.prompt_logprobs : -2;
  };
  EXPECT_EQ(rated(R"(,"logprobs":2)"), -1);
  EXPECT_EQ(rated(R"(,"echo":true)"), -1);
  EXPECT_EQ(rated(R"(,"echo":true,"stream":true)"), -1);
  EXPECT_EQ(rated(R"(,"echo":true,"logprobs":2)"), 2);
  EXPECT_EQ(rated(R"(,"prompt_logprobs":3)"), 3);
  EXPECT_EQ(rated(R"(,"prompt_logprobs":1,"echo":true,"logprobs":2)"), 2);
  auto nothing = Completion(R"({"prompt":"x","echo":true,"max_tokens":0})");
  ASSERT_TRUE(nothing) << nothing.error().message;
  EXPECT_TRUE(nothing->prompt_only);
}

TEST(Schema, LimitsPromptsTimesChoices) {
  std::string prompts = "[\"a\"";
  for (int i = 0; i < 99; ++i) prompts += ",\"a\"";
  prompts += "]";
  EXPECT_TRUE(Completion("{\"n\":20,\"prompt\":" + prompts + "}"));
  EXPECT_FALSE(Completion("{\"n\":21,\"prompt\":" + prompts + "}"));
}

TEST(Schema, WritesErrorsAsOpenAiDoes) {
  EXPECT_EQ(ToJson(ApiError{404, "no", "model", "model_not_found"}).Dump(),
            R"({"error":{"message":"no","type":"invalid_request_error","param":"model",)"
            R"("code":"model_not_found"}})");
  EXPECT_EQ(ToJson(ApiError{500, "broke", "", ""}).Dump(),
            R"({"error":{"message":"broke","type":"server_error","param":null,"code":null}})");
}

}  // namespace
}  // namespace pinion
