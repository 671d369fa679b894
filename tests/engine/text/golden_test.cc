// The small checkpoints of tests/data against what the reference library made of the same texts.

#include <gtest/gtest.h>

#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"
#include "tests/engine/text/text_cases.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

class Golden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string folder = StrCat(tests::TestData(), "/models/", GetParam());
    auto tokenizer = LoadTokenizer(folder);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = std::move(*tokenizer);
    auto golden = Json::ParseFile(folder + "/golden.json");
    ASSERT_TRUE(golden) << golden.error().message;
    golden_ = std::move(*golden);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  Json golden_;
};

TEST_P(Golden, EncodesAndDecodesLikeTheReference) {
  const Json& cases = *golden_.Find("tokenization");
  ASSERT_FALSE(cases.array().empty());
  for (const Json& c : cases.array()) {
    const std::string& text = c.Find("text")->string();
    EXPECT_EQ(tokenizer_->Encode(text, true), ReadIds(*c.Find("ids"))) << text;
    EXPECT_EQ(tokenizer_->Encode(text, false), ReadIds(*c.Find("ids_without_special"))) << text;
    EXPECT_EQ(tokenizer_->Decode(ReadIds(*c.Find("ids")), true), c.Find("decoded")->string());
  }
}

TEST_P(Golden, DecodesGeneratedTokensLikeTheReference) {
  for (const Json& prompt : golden_.Find("prompts")->array())
    EXPECT_EQ(tokenizer_->Decode(ReadIds(*prompt.Find("greedy_ids")), true),
              prompt.Find("greedy_text")->string());
}

TEST_P(Golden, StreamsPromptsToTheLetter) {
  for (const Json& prompt : golden_.Find("prompts")->array()) {
    const std::vector<int32_t> ids = ReadIds(*prompt.Find("input_ids"));
    const std::string whole = tokenizer_->Decode(ids, true);
    StreamDecoder stream(*tokenizer_, {});
    std::string text;
    for (int32_t id : ids) {
      text += stream.Push(id);
      ASSERT_EQ(whole.substr(0, text.size()), text);
      ASSERT_TRUE(IsValidUtf8(text));
    }
    EXPECT_EQ(text + stream.Flush(), whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(tests::ModelFixtures()),
                         [](const auto& info) { return tests::TestName(info.param); });

}  // namespace
}  // namespace pinion
