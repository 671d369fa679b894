#include "engine/serve/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"
#include "engine/serve/field_table.h"
#include "engine/serve/fields.h"

namespace pinion {
namespace {

using testing::HasSubstr;

ApiDefaults Defaults(const char* generation_config = "{}") {
  auto defaults = ReadApiDefaults(*Json::Parse(generation_config));
  EXPECT_TRUE(defaults);
  return *defaults;
}
ApiResult<GenerationRequest> Completion(const std::string& text) {
  const Json body = *Json::Parse(text);
  PINION_TRY(CheckFields(Api::kCompletions, body, {.ignores_unknown = true}));
  return ReadCompletionRequest(body, Defaults());
}
ApiResult<GenerationRequest> Chat(const std::string& text) {
  const Json body = *Json::Parse(text);
  PINION_TRY(CheckFields(Api::kChat, body, {.ignores_unknown = true}));
  return ReadChatRequest(body, Defaults());
}

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

TEST(Schema, AnswersWithTextAlone) {
  const std::string start = R"({"messages":[{"role":"user","content":"x"}],"modalities":)";
  EXPECT_TRUE(Chat(start + R"(["text"]})"));
  EXPECT_TRUE(Chat(start + "null}"));
  for (const char* bad : {R"(["text","audio"]})", R"("text"})", "[7]}"}) {
    const auto refused = Chat(start + bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().param, "modalities");
  }
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

TEST(Schema, ReadsWhatConstrainsTheAnswer) {
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

TEST(Schema, RefusesToolsThatAreNoFunctions) {
  for (const char* tool :
       {"3", "{}", R"({"type":"function"})", R"({"type":"function","function":{}})",
        R"({"type":"function","function":{"name":""}})",
        R"({"type":"retrieval","function":{"name":"f"}})",
        R"({"type":"function","function":{"name":"f","parameters":[]}})"}) {
    const auto request =
        Chat(StrCat(R"({"messages":[{"role":"user","content":"x"}],"tools":[)", tool, "]}"));
    ASSERT_FALSE(request) << tool;
    EXPECT_EQ(request.error().param, "tools[0]") << tool;
  }
  EXPECT_TRUE(Chat(R"({"messages":[{"role":"user","content":"x"}],
      "tools":[{"function":{"name":"f","parameters":null}}]})"));
}

TEST(Schema, ReadsTextsInTheFormsThatClientsSendBack) {
  const auto request = Chat(
      R"({"messages":[{"role":"user","content":[{"type":"input_text","text":"a"},"b"]},
          {"role":"assistant","content":[{"type":"output_text","text":"c"},
                                         {"type":"refusal","refusal":"no"}]}]})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->conversation.messages.Dump(),
            R"([{"role":"user","content":"a\nb"},)"
            R"({"role":"assistant","content":[{"type":"text","text":"c"},)"
            R"({"type":"text","text":"no"}]}])");
  EXPECT_FALSE(Chat(R"({"messages":[{"role":"user","content":[{"type":"refusal","text":"a"}]}]})"));
}

ApiResult<GenerationRequest> WithTools(const std::string& more) {
  return Chat(R"({"messages":[{"role":"user","content":"x"}],"tools":[
      {"type":"function","function":{"name":"f","parameters":{"type":"object",
       "properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"integer"}}}}},
      {"type":"function","function":{"name":"g"}}],)" +
              more + "}");
}

TEST(Schema, ARequiredCallIsAListOfCallsOfAnyTool) {
  const auto request = WithTools(R"("tool_choice":"required","parallel_tool_calls":false)");
  ASSERT_TRUE(request) << request.error().message;
  ASSERT_TRUE(request->grammar && request->output.forced);
  EXPECT_EQ(request->output.forced->name, "");
  const Json schema = *Json::Parse(request->grammar->text);
  EXPECT_EQ(schema.Find("minItems")->integer(), 1);
  EXPECT_EQ(schema.Find("maxItems")->integer(), 1);
  EXPECT_EQ(schema.Find("items")->Find("anyOf")->array().size(), 2u);
  EXPECT_TRUE(schema.Find("$defs")->Find("A")) << "references look from the top";
  EXPECT_THAT(request->grammar->text,
              testing::Not(HasSubstr(R"("$defs":{"A":{"type":"integer"}}}},)")));
}

TEST(Schema, ANamedCallIsTheToolsArguments) {
  const auto request = WithTools(R"("tool_choice":{"type":"function","function":{"name":"g"}})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->output.forced->name, "g");
  EXPECT_EQ(request->grammar->text, R"({"type":"object"})");
}

TEST(Schema, RefusesCallsThatCannotBeForced) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"("tool_choice":{"type":"function","function":{"name":"h"}})", "none of the tools"},
      {R"("tool_choice":"always")", "want \"auto\""},
      {R"("tool_choice":"required","tools":[])", "has no tools"},
      {R"("tool_choice":"required","guided_regex":"a")", "both constrain"},
  };
  for (const auto& [field, why] : kCases) {
    auto body = *Json::Parse(R"({"messages":[{"role":"user","content":"x"}],
        "tools":[{"type":"function","function":{"name":"f"}}]})");
    const Json more = *Json::Parse(std::string("{") + field + "}");
    for (const auto& [key, value] : more.object()) body.Set(key, value);
    const auto request = ReadChatRequest(body, {});
    ASSERT_FALSE(request) << field;
    EXPECT_THAT(request.error().message, HasSubstr(why));
    EXPECT_EQ(request.error().param, "tool_choice");
  }
  const auto differ = Chat(R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required",
      "tools":[{"type":"function","function":{"name":"f","parameters":{"$defs":{"A":{"a":1}}}}},
               {"type":"function","function":{"name":"g","parameters":{"$defs":{"A":{"a":2}}}}}]})");
  ASSERT_FALSE(differ);
  EXPECT_THAT(differ.error().message, HasSubstr("two definitions of 'A'"));
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

TEST(Fields, NamesAnUnknownOneUnlessTheyAreIgnored) {
  const Json body = *Json::Parse(R"({"prompt":"x","user":"me","guided_json":null,"audio":"",
                                     "watermarking":null,"messages":[],"top_pp":0.5})");
  auto refused = CheckFields(Api::kChat, body, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 400);
  EXPECT_EQ(refused.error().param, "prompt") << "a field of the other endpoint";
  EXPECT_EQ(refused.error().code, kUnknownField);
  EXPECT_THAT(CheckFields(Api::kCompletions, body, {}).error().message,
              HasSubstr("'messages' is not a field of this endpoint"));
  const FieldRules ignoring = {.ignores_unknown = true};
  EXPECT_EQ(CheckFields(Api::kCompletions, body, ignoring).value(), 2u);  // messages, top_pp
  EXPECT_EQ(CheckFields(Api::kChat, body, ignoring).value(), 2u);         // prompt, top_pp
  const Json harmless = *Json::Parse(R"({"prompt":"x","user":"me","store":true})");
  EXPECT_EQ(CheckFields(Api::kCompletions, harmless, {}).value(), 0u);
}

TEST(Fields, RefusesWhatIsMissingHereEvenIfUnknownOnesAreIgnored) {
  const auto refused = [](Api api, const std::string& field) {
    const auto checked =
        CheckFields(api, *Json::Parse("{" + field + "}"), {.ignores_unknown = true});
    return checked ? "" : checked.error().message;
  };
  EXPECT_THAT(refused(Api::kChat, R"("functions":[{}])"),
              HasSubstr("'functions' is not supported; use tools"));
  EXPECT_EQ(refused(Api::kChat, R"("functions":[])"), "");
  EXPECT_THAT(refused(Api::kResponses, R"("background":true)"), HasSubstr("stores no responses"));
  EXPECT_EQ(refused(Api::kChat, R"("background":true)"), "") << "another API's";
}

TEST(Fields, HaveATemplateOfTheirOwnOnlyIfTheServerTrustsThem) {
  const Json body = *Json::Parse(R"({"chat_template":"{{ 1 }}"})");
  for (const Api api : {Api::kChat, Api::kMessages, Api::kResponses, Api::kTokenize,
                        Api::kApplyTemplate, Api::kCountTokens, Api::kEmbeddings, Api::kClassify}) {
    const auto refused = CheckFields(api, body, {.ignores_unknown = true});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().status, 400);
    EXPECT_EQ(refused.error().param, "chat_template");
    EXPECT_THAT(refused.error().message, HasSubstr("--trust-request-chat-template"));
    EXPECT_TRUE(CheckFields(api, body, {.trusts_templates = true}));
  }
  const auto text = CheckFields(Api::kCompletions, body, {.trusts_templates = true});
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("no template"));
}

TEST(Fields, HaveOneMeaningInEachApi) {
  std::string last;
  std::vector<const Field*> of_name;
  for (const Field& field : FieldTable()) {
    ASSERT_TRUE(Json::Parse(field.schema)) << field.name;
    if (last != field.name) of_name.clear();
    last = field.name;
    of_name.push_back(&field);
    for (auto api = Api::kCompletions; api <= Api::kCountTokens;
         api = static_cast<Api>(static_cast<int>(api) + 1)) {
      const auto has = [api](const Field* row) {
        return row->read_by.Has(api) + row->ignored_by.Has(api);
      };
      int times = 0;
      for (const Field* row : of_name) times += has(row);
      EXPECT_LE(times, 1) << field.name << " of API " << static_cast<int>(api);
      EXPECT_TRUE(field.read_by.Has(api) || !field.required_by.Has(api)) << field.name;
    }
  }
}

TEST(Fields, GoOnToAnotherApiIfBothMeanTheSame) {
  const Json body = *Json::Parse(R"({"top_p":0.5,"tools":[],"min_p":null,"user":"me","n":1})");
  EXPECT_EQ(SharedFields(body, Api::kResponses, Api::kChat).Dump(), R"({"top_p":0.5})");
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

TEST(Schema, TurnsMessagesIntoWhatTemplatesKnow) {
  auto request = Chat(R"({"messages":[
      {"role":"system","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",
          "function":{"name":"f","arguments":"{\"x\": 1}"}}]},
      {"role":"user","content":"hi","name":"me"}],
      "tools":[{"type":"function","function":{"name":"f"}}],
      "chat_template_kwargs":{"enable_thinking":false}})");
  ASSERT_TRUE(request) << request.error().message;
  const Conversation& chat = request->conversation;
  const auto& messages = chat.messages.array();
  EXPECT_EQ(TextOfContent(*messages[0].Find("content")), "one\ntwo");
  EXPECT_EQ(messages[1].Find("content")->string(), "");
  const Json& call = messages[1].Find("tool_calls")->array()[0];
  EXPECT_EQ(call.Find("function")->Find("arguments")->Find("x")->integer(), 1);
  EXPECT_EQ(messages[2].Find("name")->string(), "me");
  EXPECT_EQ(chat.tools.array().size(), 1u);
  EXPECT_FALSE(chat.template_kwargs.Find("enable_thinking")->boolean());
  EXPECT_TRUE(chat.add_generation_prompt);
}

TEST(Schema, DropsWhatAMessageDoesNotSay) {
  auto request = Chat(R"({"messages":[{"role":"user","content":"a","name":"n"},
      {"role":"assistant","content":null,"tool_calls":[],"refusal":null,"audio":null}]})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->conversation.messages.Dump(),
            R"([{"role":"user","content":"a","name":"n"},{"role":"assistant","content":""}])");
}

TEST(Schema, EchoesOnlyWhatTheAssistantSaid) {
  const auto echoed = [](const std::string& role, const char* echo) {
    auto request = Chat(R"({"messages":[{"role":")" + role + R"(","content":"a"}],"echo":)" + echo +
                        R"(,"logprobs":true,"max_completion_tokens":1})");
    EXPECT_FALSE(request->prompt_only);
    EXPECT_EQ(request->params.prompt_logprobs, -1);
    return request->echo ? request->echoed : "nothing";
  };
  EXPECT_EQ(echoed("assistant", "true"), "a");
  EXPECT_EQ(echoed("assistant", "false"), "nothing");
  EXPECT_EQ(echoed("user", "true"), "nothing");
}

TEST(Schema, ReadsChatLimitsAndLogprobs) {
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}])";
  auto open = Chat("{" + messages + "}");
  ASSERT_TRUE(open);
  EXPECT_FALSE(open->max_tokens_given);
  EXPECT_EQ(open->params.logprobs, -1);
  auto both = Chat("{" + messages + R"(,"max_tokens":5,"max_completion_tokens":7})");
  ASSERT_TRUE(both);
  EXPECT_EQ(both->params.max_tokens, 7);
  for (const char* more :
       {R"("max_completion_tokens":0)", R"("max_tokens":5,"max_completion_tokens":-1)"}) {
    const auto refused = Chat("{" + messages + "," + more + "}");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().param, "max_completion_tokens");
    EXPECT_THAT(refused.error().message, HasSubstr("'max_completion_tokens' is "));
  }
  auto chosen = Chat("{" + messages + R"(,"logprobs":true})");
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->params.logprobs, 0);
  auto top = Chat("{" + messages + R"(,"logprobs":true,"top_logprobs":4})");
  ASSERT_TRUE(top);
  EXPECT_EQ(top->params.logprobs, 4);
  EXPECT_FALSE(Chat("{" + messages + R"(,"top_logprobs":4})"));
}

TEST(Schema, RefusesUnsupportedConversations) {
  for (const char* body :
       {"{}", "[]", "7", R"({"messages":[]})", R"({"messages":"hi"})", R"({"messages":[7]})",
        R"({"messages":[{"content":"x"}]})", R"({"messages":[{"role":"user","content":7}]})",
        R"({"messages":[{"role":"user","content":[{"text":"x"}]}]})",
        R"({"messages":[{"role":"user","content":"x"}],"tools":{}})",
        R"({"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":[]})",
        R"({"messages":[{"role":"user","content":"x"}],"chat_template":"{{x}}"})"}) {
    EXPECT_FALSE(Chat(body)) << body;
  }
  auto image = Chat(R"({"messages":[{"role":"user","content":[
      {"type":"text","text":"what is this"},{"type":"image_url","image_url":{"url":"http://x"}}]}]})");
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().param, "messages[0].content");
  EXPECT_THAT(image.error().message, HasSubstr("image_url"));
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
