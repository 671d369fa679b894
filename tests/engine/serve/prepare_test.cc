#include "engine/serve/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/serve/request_memory.h"
#include "tests/counted_heap.h"
#include "tests/engine/serve/fakes.h"

namespace pinion {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string Repeated(const std::string& part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

TEST(ParsedBytes, IsAtLeastTheHeapThatParsingTakes) {
  std::string keys = "{\"k\":0";
  for (int i = 0; i < 65'600; ++i) keys += StrCat(",\"", i, "\":0");
  const std::vector<std::string> bodies = {
      "0",
      "{}",
      "\"x\"",
      keys + "}",
      // just above a power of two: the vector has doubled for the last one
      "[0" + Repeated(",0", (1 << 16) + 1) + "]",
      "{\"prompt\":[\"a\"" + Repeated(",\"\"", (1 << 16) + 1) + "]}",
      "[[0]" + Repeated(",[0]", (1 << 16) + 1) + "]",
      "[{\"a\":{}}" + Repeated(",{\"a\":{}}", (1 << 15) + 1) + "]",
      "[\"0123456789abcdef\"" + Repeated(",\"0123456789abcdef\"", (1 << 15) + 1) + "]",
      "{\"0123456789abcdef0\":\"0123456789abcdef0\"" +
          Repeated(",\"0123456789abcdef0\":\"0123456789abcdef0\"", (1 << 14) + 1) + "}",
      "\"" + std::string((1 << 22) + 1, 'x') + "\"",
      "\"" + Repeated("\\u20ac\\\"", 1 << 18) + "\"",
      "{\"prompt\":\"" + Repeated("\\\\\\\"[,:", 1 << 16) + "\"}",
      Repeated("[", 200) + Repeated("]", 200),
      "[1e5" + Repeated(",-1.5e300", 1 << 16) + "]",
  };
  for (const std::string& body : bodies) {
    const size_t before = tests::ResetHeapPeak();
    const auto parsed = Json::Parse(body);
    const size_t took = tests::HeapPeak() - before;
    EXPECT_TRUE(parsed) << body.substr(0, 40);
    // A few allocations of a parser's start are below any limit.
    EXPECT_LE(took, ParsedBytes(body) + 4096) << body.substr(0, 40);
  }
}

// The parser's message quotes what it has read since the last value.
TEST(ParsedBytes, IsAtLeastTheHeapThatAnErrorTakes) {
  for (const std::string& body :
       {"{\"a\"" + std::string((1 << 18) + 1, '\r') + "@", "\"" + std::string((1 << 20) + 1, 'x'),
        "[" + std::string((1 << 20) + 1, '1') + "x"}) {
    const size_t before = tests::ResetHeapPeak();
    const auto parsed = Json::Parse(body);
    const size_t took = tests::HeapPeak() - before;
    ASSERT_FALSE(parsed);
    EXPECT_LE(took, ParsedBytes(body) + 4096) << body.substr(0, 40);
    EXPECT_LT(parsed.error().message.size(), 400u);
  }
}

TEST(ParsedBytes, DoesNotCountTheContentsOfStrings) {
  EXPECT_EQ(ParsedBytes(R"(["[,:{"])"), ParsedBytes(R"(["aaaa"])"));
  EXPECT_EQ(ParsedBytes(R"(["\",,"])"), ParsedBytes(R"(["\"aa"])"));
  EXPECT_LT(ParsedBytes(R"(["aaaa"])"), ParsedBytes(R"(["a",""])"));
}

class PreparerTest : public testing::Test {
 protected:
  ApiResult<Prepared> Prepare(const std::string& body, Api api = Api::kCompletions) {
    request_ = HttpRequest();
    request_.body = body;
    request_.memory = *MemoryShare::Take(budget_, "asks", body.size());
    const Preparer preparer(model_, tokenizer_, limits_);
    const auto render = [this](const ChatRequest& asked) {
      kwargs_ = asked.kwargs;
      template_ = asked.chat_template;
      timeout_at_render_ = timeout_s_;
      return Result<std::string>(rendered_);
    };
    return preparer.Generation(
        request_, api, 10'000, 5'000, render,
        [this](const Grammar& grammar) { return CheckGrammar(grammar); },
        [this](double seconds) { timeout_s_ = seconds; });
  }

  Status CheckGrammar(const Grammar& grammar) {
    checked_.push_back(grammar);
    return grammar_is_bad_ ? Status(Fail(ErrorCode::kUsage, "the json is bad")) : Status();
  }

  std::vector<Grammar> checked_;
  bool grammar_is_bad_ = false;
  std::string rendered_ = "rendered";
  ServedModel model_{"fake", "somewhere", 257, *ReadApiDefaults(std::nullopt)};
  ByteTokenizer tokenizer_;
  FrontLimits limits_;
  std::shared_ptr<MemoryBudget> budget_ = std::make_shared<MemoryBudget>(8 << 20);
  HttpRequest request_;
  Json kwargs_;
  std::string template_;
  double timeout_s_ = 0, timeout_at_render_ = 0;
};

TEST_F(PreparerTest, TellsATimeoutBeforeTheWorkThatTakesTime) {
  ASSERT_TRUE(Prepare(R"({"messages":[{"role":"u","content":"x"}],"max_tokens":5,"timeout":1.5})",
                      Api::kChat));
  EXPECT_EQ(timeout_at_render_, 1.5);
}

TEST_F(PreparerTest, RefusesPrioritiesThatTheOperatorDoesNotAllow) {
  EXPECT_TRUE(Prepare(R"({"prompt":"abc","max_tokens":5,"priority":-1000})"));
  limits_.min_priority = 0;
  const auto refused = Prepare(R"({"prompt":"abc","max_tokens":5,"priority":-1})");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 400);
  EXPECT_THAT(refused.error().message,
              HasSubstr("'priority' is -1, want at least 0 (--min-priority)"));
  EXPECT_TRUE(Prepare(R"({"prompt":"abc","max_tokens":5,"priority":0})"));
}

TEST_F(PreparerTest, KeepsMemoryOnlyForKeptRequests) {
  {
    const auto prepared = Prepare(R"({"prompt":["abc","de"],"max_tokens":5})");
    ASSERT_TRUE(prepared);
    EXPECT_EQ(prepared->prompts.size(), 2u);
    EXPECT_EQ(prepared->primed.size(), 2u);
    EXPECT_EQ(budget_->used(), prepared->memory.bytes());
    EXPECT_EQ(prepared->memory.bytes(), 4096 + 5 * sizeof(int32_t));
  }
  {  // of which parsing takes more than what is kept
    const std::string body = R"({"max_tokens":5,"prompt":[0)" + Repeated(",0", 999) + "]}";
    ASSERT_GT(ParsedBytes(body), 10u * (4096 + 1000 * sizeof(int32_t)));
    const auto prepared = Prepare(body);
    ASSERT_TRUE(prepared);
    EXPECT_EQ(budget_->used(), 4096 + 1000 * sizeof(int32_t));
  }
  EXPECT_EQ(budget_->used(), 0u);
}

TEST_F(PreparerTest, PaysForTheEchoOfEveryChoice) {
  const std::string prompt(1000, 'x');
  const auto prepared =
      Prepare(StrCat(R"({"prompt":")", prompt, R"(","n":100,"echo":true,"max_tokens":5})"));
  ASSERT_TRUE(prepared);
  EXPECT_EQ(prepared->echoes, std::vector<std::string>{prompt});
  EXPECT_GE(prepared->memory.bytes(), 100u * 1000);
}

TEST_F(PreparerTest, TellsTooMuchFromNotNow) {
  const std::string body = "{\"prompt\":[0" + Repeated(",0", 10'000) + "]}";  // 2.4 MB as values
  auto held = MemoryShare::Take(budget_, "holds", 4 << 20);
  auto more = MemoryShare::Take(budget_, "holds too", 3 << 20);
  const auto later = Prepare(body);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().status, 503);
  EXPECT_EQ(later.error().code, kRequestMemory);
  more.reset();
  EXPECT_FALSE(Prepare(body));  // too many tokens, but there was memory
  const auto never = Prepare("{\"prompt\":[0" + Repeated(",0", 100'000) + "]}");
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().status, 413);
  EXPECT_THAT(never.error().message, HasSubstr("--request-memory"));
}

TEST_F(PreparerTest, BoundsTheWidthOfABeamSearchAndItsPrompts) {
  limits_.max_logprobs = -1;
  const auto searched = [this](size_t n, size_t prompts, size_t prompt_tokens) {
    std::string body =
        StrCat(R"({"use_beam_search":true,"max_tokens":5,"n":)", n, R"(,"prompt":[)");
    for (size_t i = 0; i < prompts; ++i)
      body += StrCat(i == 0 ? "\"" : ",\"", std::string(prompt_tokens, 'x'), "\"");
    const auto prepared = Prepare(body + "]}");
    return prepared ? "taken" : prepared.error().message;
  };
  EXPECT_EQ(searched(64, 1, 4096), "taken");
  EXPECT_EQ(searched(65, 1, 1), "'n' is 65, the width of a beam search, want at most 64");
  EXPECT_EQ(searched(64, 2, 2049),
            "'n' is 64, the width of a beam search behind 4098 tokens of prompt, 262272 together, "
            "want at most 262144; ask for fewer answers or send less text at once");
}

TEST_F(PreparerTest, ReservesTheMemoryOfABeamSearch) {
  const auto held = [this](const char* more) {
    const auto prepared = Prepare(StrCat(R"({"prompt":"abc","n":4,"max_tokens":500)", more, "}"));
    EXPECT_TRUE(prepared) << prepared.error().message;
    return prepared ? prepared->memory.bytes() : 0;
  };
  EXPECT_GE(held(R"(,"use_beam_search":true)") - held(""), BeamSearch::MostBytes(4, 500, 0));
}

TEST_F(PreparerTest, TemplatesSeeTheClientsKeysLast) {
  ASSERT_TRUE(Prepare(R"({"messages":[{"role":"u","content":"x"}],"max_tokens":5,
                          "chat_template_kwargs":{"a":1,"eos_token":"mine","a":2}})",
                      Api::kChat));
  EXPECT_EQ(kwargs_.Dump(), R"({"eos_token":"mine","add_generation_prompt":true,"a":2})");
}

TEST_F(PreparerTest, WritesConversationsWithToolsWithTheirOwnTemplate) {
  tokenizer_.SetToolTemplate("(with tools)");
  const auto template_for = [this](const char* more) {
    EXPECT_TRUE(
        Prepare(StrCat(R"({"messages":[{"role":"user","content":"x"}],"max_tokens":5)", more, "}"),
                Api::kChat));
    return template_;
  };
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(template_for(tools.c_str()), "(with tools)");
  EXPECT_EQ(template_for(StrCat(tools, R"(,"tool_choice":"none")").c_str()), "(the test renders)");
  EXPECT_EQ(template_for(R"(,"tools":[])"), "(the test renders)");
  EXPECT_EQ(template_for(""), "(the test renders)");
}

TEST_F(PreparerTest, WritesATrustedRequestWithItsOwnTemplate) {
  const std::string messages = R"("messages":[{"role":"user","content":"x"}],"max_tokens":5)";
  const std::string own = StrCat("{", messages, R"(,"chat_template":"mine"})");
  ASSERT_FALSE(Prepare(own, Api::kChat)) << "the default is to trust nobody";
  limits_.trust_request_chat_template = true;
  for (const Api api : {Api::kChat, Api::kMessages}) {
    ASSERT_TRUE(Prepare(own, api));
    EXPECT_EQ(template_, "mine");
    ASSERT_TRUE(Prepare(StrCat("{", messages, R"(,"chat_template":""})"), api));
    EXPECT_EQ(template_, "(the test renders)") << "an empty one is none";
  }
}

TEST_F(PreparerTest, RefusesRequestsThatTheCacheCannotHold) {
  const auto prepared = Prepare(R"({"prompt":"abc","max_tokens":4999})");
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().status, 400);
  EXPECT_THAT(prepared.error().message,
              HasSubstr("needs 5001 tokens of KV cache, which holds 5000"));
  EXPECT_TRUE(Prepare(R"({"prompt":"abc","max_tokens":4998})"));
}

TEST_F(PreparerTest, RefusesGrammarsByTheFieldThatHasThem) {
  const std::string body = R"({"prompt":"abc","max_tokens":5,"guided_json":{"a":1}})";
  ASSERT_TRUE(Prepare(body));
  ASSERT_EQ(checked_.size(), 1u);
  EXPECT_EQ(checked_[0], (Grammar{"json", R"({"a":1})"}));
  grammar_is_bad_ = true;
  const auto prepared = Prepare(body);
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().status, 400);
  EXPECT_EQ(prepared.error().param, "guided_json");
  EXPECT_EQ(prepared.error().message, "'guided_json': the json is bad");
}

TEST_F(PreparerTest, WholeNumbersMayBeWrittenAsReals) {
  const auto read =
      Prepare(R"({"prompt":"x","max_tokens":16.0,"top_k":1e1,"seed":-0.0,"logprobs":2.0,
                                "temperature":1.0})");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->request.params.max_tokens, 16);
  EXPECT_EQ(read->request.params.top_k, 10);
  EXPECT_EQ(read->request.params.seed, 0u);
  EXPECT_EQ(read->request.params.logprobs, 2);
  for (const char* bad : {"16.5", "1e30", "-1e300"}) {
    const auto refused = Prepare(StrCat(R"({"prompt":"x","max_tokens":)", bad, "}"));
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().param, "max_tokens") << bad;
  }
}

TEST_F(PreparerTest, ErrorsNameFieldsAsTheirClientDid) {
  const auto error = [this](const std::string& body, Api api) {
    const auto refused = Prepare(body, api);
    return refused ? "none" : refused.error().param + ": " + refused.error().message;
  };
  const std::string message = R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],)";
  limits_.max_stop = 1;
  EXPECT_THAT(error(message + R"("stop_sequences":["a","b"]})", Api::kMessages),
              StartsWith("stop_sequences: 'stop_sequences' has 2 entries"));
  EXPECT_THAT(error(R"({"prompt":"x","stop":["a","b"]})", Api::kLlama),
              StartsWith("stop: 'stop' has 2 entries"));
  EXPECT_THAT(error(R"({"prompt":"x","json_schema":{},"guided_regex":"a"})", Api::kLlama),
              StartsWith("guided_regex: 'guided_regex' and 'json_schema' both constrain"));
  EXPECT_THAT(error(R"({"prompt":"x","n_probs":"all"})", Api::kLlama), StartsWith("n_probs: "));
  EXPECT_THAT(error(R"({"prompt":"x","n_predict":5,"min_tokens":-1})", Api::kLlama),
              StartsWith("min_tokens: min_tokens is -1"));
  grammar_is_bad_ = true;
  const auto bad = [&](const std::string& name, const std::string& body, Api api) {
    EXPECT_EQ(error(body, api), StrCat(name, ": '", name, "': the json is bad"));
  };
  bad("json_schema", R"({"prompt":"x","n_predict":5,"json_schema":{}})", Api::kLlama);
  bad("guided_json", R"({"prompt":"x","n_predict":5,"guided_json":{}})", Api::kLlama);
  bad("grammar", R"({"prompt":"x","n_predict":5,"grammar":"g"})", Api::kLlama);
  bad("text.format",
      R"({"input":"x","max_output_tokens":5,"text":{"format":{"type":"json_schema","name":"n","schema":{}}}})",
      Api::kResponses);
  bad("output_config.format",
      message + R"("output_config":{"format":{"type":"json_schema","schema":{}}}})",
      Api::kMessages);
}

TEST_F(PreparerTest, AConstrainedAnswerIsSearchedForReasoningAlone) {
  model_.output = *ChooseOutputFormat("hermes", "qwen3", std::nullopt);
  const std::string body = R"({"messages":[{"role":"u","content":"x"}],"max_tokens":5,
      "tools":[{"type":"function","function":{"name":"f"}}])";
  const auto free = Prepare(body + "}", Api::kChat);
  ASSERT_TRUE(free && free->request.output.calls && free->request.output.thoughts);
  EXPECT_FALSE(free->request.params.thought.any()) << "nothing has to be found in the engine";
  const auto constrained = Prepare(body + R"(,"guided_json":{}})", Api::kChat);
  ASSERT_TRUE(constrained);
  EXPECT_FALSE(constrained->request.output.calls);
  EXPECT_TRUE(constrained->request.output.thoughts);
  EXPECT_TRUE(constrained->request.params.thought.any());
  EXPECT_EQ(constrained->request.params.thought.budget, -1);
  EXPECT_TRUE(constrained->request.params.thought.blank.empty())
      << "white space is the grammar's, if it has any";
}

TEST_F(PreparerTest, AGrammarBeginsWithTheAnswerIfThePromptHasEndedTheReasoning) {
  model_.output = *ChooseOutputFormat("none", "qwen3", std::nullopt);
  const std::string body =
      R"({"messages":[{"role":"u","content":"x"}],"max_tokens":5,"guided_json":{},
          "thinking_token_budget":4})";
  rendered_ = "Hi <think>\n";
  const auto thinks = Prepare(body, Api::kChat);
  ASSERT_TRUE(thinks);
  EXPECT_TRUE(thinks->request.output.starts_in_thought);
  EXPECT_EQ(thinks->request.thought_in_prompts, std::vector<int>{1});
  EXPECT_EQ(thinks->request.params.thought.budget, 4);
  rendered_ = "Hi <think>\n\n</think>\n\n";
  const auto ended = Prepare(body, Api::kChat);
  ASSERT_TRUE(ended);
  EXPECT_FALSE(ended->request.output.any());
  EXPECT_FALSE(ended->request.params.thought.any());
  model_.output = *ChooseOutputFormat("none", "openai_gptoss", std::nullopt);
  const auto harmony = Prepare(body, Api::kChat);
  ASSERT_TRUE(harmony);
  EXPECT_FALSE(harmony->request.output.any()) << "its messages have no place for a grammar";
}

TEST_F(PreparerTest, ABudgetOfReasoningComesWithItsMarks) {
  model_.output = *ChooseOutputFormat("none", "qwen3", std::nullopt);
  const auto prepared =
      Prepare(R"({"prompt":["Why?","Why?<think>ab"],"max_tokens":5,"thinking_token_budget":3})");
  ASSERT_TRUE(prepared) << prepared.error().message;
  const ThoughtRules& rules = prepared->request.params.thought;
  EXPECT_EQ(rules.budget, 3);
  EXPECT_EQ(rules.end, *tokenizer_.Encode("</think>", false));
  EXPECT_EQ(prepared->request.thought_in_prompts, (std::vector<int>{-1, 2}));
  const auto free = Prepare(R"({"prompt":"Why?","thinking_token_budget":-1})");
  ASSERT_TRUE(free);
  EXPECT_FALSE(free->request.params.thought.any()) << "-1 is no budget";
}

TEST_F(PreparerTest, ABudgetOfReasoningNeedsAModelThatIsKnownToReason) {
  const auto refused = Prepare(R"({"prompt":"Why?","thinking_token_budget":3})");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 400);
  EXPECT_EQ(refused.error().param, "thinking_token_budget");
  EXPECT_THAT(refused.error().message, HasSubstr("--reasoning-parser"));
  EXPECT_TRUE(Prepare(R"({"prompt":"Why?","thinking_token_budget":-1})"));
  EXPECT_TRUE(Prepare(R"({"prompt":"Why?","thinking_token_budget":null})"));
}

TEST_F(PreparerTest, AMessagesBudgetIsAWish) {
  const std::string messages = R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],)";
  const std::string thinking = R"("thinking":{"type":"enabled","budget_tokens":1024})";
  const auto ignored = Prepare(messages + thinking + "}", Api::kMessages);
  ASSERT_TRUE(ignored) << ignored.error().message;
  EXPECT_FALSE(ignored->request.params.thought.any()) << "nobody knows how the model reasons";
  EXPECT_FALSE(Prepare(messages + R"("thinking_token_budget":7})", Api::kMessages));
  model_.output = *ChooseOutputFormat("none", "qwen3", std::nullopt);
  const auto obeyed = Prepare(messages + thinking + "}", Api::kMessages);
  ASSERT_TRUE(obeyed);
  EXPECT_EQ(obeyed->request.params.thought.budget, 1024);
  const auto named =
      Prepare(messages + thinking + R"(,"thinking_token_budget":7})", Api::kMessages);
  ASSERT_TRUE(named);
  EXPECT_EQ(named->request.params.thought.budget, 7) << "the field that says it by name goes first";
}

TEST_F(PreparerTest, ABudgetOfReasoningThatIsNotANumberOfTokensIsRefused) {
  model_.output = *ChooseOutputFormat("none", "qwen3", std::nullopt);
  for (const char* value :
       {"-2", "-2147483649", "\"5\"", "2.5", "1e99", "99999999999", "[]", "true"}) {
    const auto refused =
        Prepare(StrCat(R"({"prompt":"Why?","thinking_token_budget":)", value, "}"));
    ASSERT_FALSE(refused) << value;
    EXPECT_EQ(refused.error().param, "thinking_token_budget") << value;
    EXPECT_THAT(refused.error().message, HasSubstr("thinking_token_budget")) << value;
    const auto message =
        Prepare(StrCat(R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],)",
                       R"("thinking":{"type":"enabled","budget_tokens":)", value, "}}"),
                Api::kMessages);
    ASSERT_FALSE(message) << value;
    EXPECT_EQ(message.error().param, "thinking.budget_tokens") << value;
  }
}

}  // namespace
}  // namespace pinion
