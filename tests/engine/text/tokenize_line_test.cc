// The contract of `pinion tokenize`, one line at a time.

#include "engine/text/tokenize_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using testing::HasSubstr;

class Line : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = LoadTokenizer(StrCat(tests::TestData(), "/models/llama"));
    ASSERT_TRUE(loaded) << loaded.error().message;
    tokenizer_ = std::move(*loaded);
  }
  // The answer, or the error's message.
  std::string Answer(std::string_view line) {
    LineTokenizer lines(*tokenizer_, {}, {});
    const auto answer = lines.Answer(*Json::Parse(line));
    return answer ? answer->Dump() : answer.error().message;
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(Line, EncodesWithAndWithoutSpecialTokens) {
  EXPECT_EQ(Answer(R"({"text": "hi"})"), R"({"ids":[0,76,77],"decoded":"hi"})");
  EXPECT_EQ(Answer(R"({"text": "hi", "add_special_tokens": false})"),
            R"({"ids":[76,77],"decoded":"hi"})");
}

TEST_F(Line, DecodesBothWays) {
  EXPECT_EQ(Answer(R"({"ids": [0, 76, 77]})"),
            R"({"decoded":"hi","decoded_with_special":"<|begin_of_text|>hi"})");
}

TEST_F(Line, StreamsTokenByToken) {
  EXPECT_EQ(Answer(R"({"prompt_ids": [76], "ids": [77, 0, 76], "stream": true})"),
            R"({"emit":["i","","h"],"flush":""})");
}

TEST_F(Line, NamesTheErrorInARequest) {
  EXPECT_THAT(Answer("[]"), HasSubstr("array, want an object"));
  EXPECT_THAT(Answer("{}"), HasSubstr("none of 'text', 'ids', 'messages'"));
  EXPECT_THAT(Answer(R"({"text": 5})"), HasSubstr("'text' is 5"));
  EXPECT_THAT(Answer(R"({"ids": [-1]})"), HasSubstr("holds -1"));
  EXPECT_THAT(Answer(R"({"ids": [1.5]})"), HasSubstr("holds 1.5"));
  EXPECT_THAT(Answer(R"({"messages": [], "kwargs": 1})"), HasSubstr("'kwargs' is an integer"));
}

TEST_F(Line, NamesTheSourcesOfATemplate) {
  const auto opt = LoadTokenizer(StrCat(tests::TestData(), "/models/opt"));
  ASSERT_TRUE(opt);
  LineTokenizer lines(**opt, {}, {});
  const auto answer = lines.Answer(*Json::Parse(R"({"messages": []})"));
  ASSERT_TRUE(answer);
  EXPECT_THAT(answer->Dump(), HasSubstr("--chat-template"));
}

TEST_F(Line, LetsKwargsBeatTheLineBeatTheTokenizer) {
  const auto variables = [&](std::string_view line) {
    return *ChatVariables(*tokenizer_, *Json::Parse(line));
  };
  EXPECT_EQ(variables("{}").Find("bos_token")->string(), "<|begin_of_text|>");
  EXPECT_TRUE(variables("{}").Find("add_generation_prompt")->boolean());
  EXPECT_FALSE(
      variables(R"({"add_generation_prompt": false})").Find("add_generation_prompt")->boolean());
  const Json beaten = variables(R"({"add_generation_prompt": true,
      "kwargs": {"add_generation_prompt": false, "bos_token": "B", "x": 1}})");
  EXPECT_FALSE(beaten.Find("add_generation_prompt")->boolean());
  EXPECT_EQ(beaten.Find("bos_token")->string(), "B");
  EXPECT_EQ(beaten.Find("x")->integer(), 1);
}

}  // namespace
}  // namespace pinion
