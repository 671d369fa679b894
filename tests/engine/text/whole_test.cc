// Texts and pairs of them as encoders read them, cut to a length: tokenizers that only encoders use
// against what the reference library makes of random texts (tests/data/text/wholes.jsonl, computed
// with tokenizers 0.23), and the goldens of encoders.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/text/text_cases.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using testing::HasSubstr;

TEST(Whole, EncodesTextsAndPairsLikeTheReference) {
  size_t cases = 0;
  for (const Json& line : ReadJsonLines(StrCat(tests::TestData(), "/text/wholes.jsonl"))) {
    const std::string& name = line.Find("name")->string();
    const auto tokenizer = MakeTokenizer(*line.Find("tokenizer"), Json());
    ASSERT_TRUE(tokenizer) << name << ": " << tokenizer.error().message;
    for (const Json& c : line.Find("cases")->array()) {
      const Json* second = c.Find("second");
      const auto whole =
          (*tokenizer)
              ->EncodeWhole(
                  c.Find("text")->string(),
                  second ? std::optional<std::string_view>(second->string()) : std::nullopt,
                  static_cast<size_t>(c.Find("most")->integer()));
      ASSERT_TRUE(whole) << name << ": " << whole.error().message;
      EXPECT_EQ(whole->ids, ReadIds(*c.Find("ids"))) << name << c.Dump();
      EXPECT_EQ(whole->types, ReadIds(*c.Find("types"))) << name << c.Dump();
      EXPECT_EQ((*tokenizer)->Decode(ReadIds(*c.Find("ids")), true), c.Find("decoded")->string())
          << name;
      ++cases;
    }
  }
  EXPECT_GT(cases, 700u);
}

// Decoded with tokenizers 0.23: X is normalised, and then no special token's text.
TEST(Whole, SpecialTokensAreSkippedByTheTextThatIsDecoded) {
  const auto tokenizer = MakeTokenizer(Json::Parse(R"({"normalizer": {"type": "Lowercase"},
      "added_tokens": [{"id": 2, "content": "X", "normalized": true, "special": true},
                       {"id": 3, "content": "y", "normalized": true, "special": true}],
      "model": {"type": "WordPiece", "unk_token": "u", "vocab": {"u": 0, "a": 1}}})")
                                           .value(),
                                       Json());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const std::vector<int32_t> ids = {1, 2, 3};
  EXPECT_EQ((*tokenizer)->Decode(ids, true), "a x");
  EXPECT_EQ((*tokenizer)->Decode(ids, false), "a x y");
}

class EncoderGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string folder = StrCat(tests::TestData(), "/embedders/", GetParam());
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

TEST_P(EncoderGolden, EncodesAndDecodesLikeTheReference) {
  const Json& cases = *golden_.Find("tokenization");
  ASSERT_FALSE(cases.array().empty());
  for (const Json& c : cases.array()) {
    const std::string& text = c.Find("text")->string();
    EXPECT_EQ(tokenizer_->Encode(text, true), ReadIds(*c.Find("ids"))) << text;
    EXPECT_EQ(tokenizer_->Encode(text, false), ReadIds(*c.Find("ids_without_special"))) << text;
    EXPECT_EQ(tokenizer_->Decode(ReadIds(*c.Find("ids")), true), c.Find("decoded")->string());
  }
}

TEST_P(EncoderGolden, EncodesTextsAndPairsLikeTheReference) {
  for (const Json& prompt : golden_.Find("prompts")->array()) {
    const Json& text = *prompt.Find("text");
    const auto whole = text.is_string() ? tokenizer_->EncodeWhole(text.string(), std::nullopt, 1000)
                                        : tokenizer_->EncodeWhole(text.array()[0].string(),
                                                                  text.array()[1].string(), 1000);
    ASSERT_TRUE(whole) << whole.error().message;
    EXPECT_EQ(whole->ids, ReadIds(*prompt.Find("input_ids")));
    if (const Json* types = prompt.Find("token_type_ids")) {
      EXPECT_EQ(whole->types, ReadIds(*types));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Encoders, EncoderGolden, testing::ValuesIn(tests::EncoderFixtures()),
                         [](const auto& info) { return tests::TestName(info.param); });

Result<std::unique_ptr<Tokenizer>> WithProcessor(std::string_view processor) {
  PINION_ASSIGN(const Json json,
                Json::Parse(StrCat(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2},
                                      "merges": []}, "post_processor": )",
                                   processor, "}")));
  return MakeTokenizer(json, Json());
}

constexpr std::string_view kOneText = R"({"type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "c"}}],
    "special_tokens": {"c": {"ids": [2]}}})";

TEST(Whole, NamesTheObstacleToAPair) {
  const auto tokenizer = WithProcessor(kOneText);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto pair = (*tokenizer)->EncodeWhole("a", "b", 10);
  ASSERT_FALSE(pair);
  EXPECT_THAT(pair.error().message, HasSubstr("no template for pairs"));
}

TEST(Whole, RefusesALengthThatSpecialTokensExceed) {
  const auto tokenizer = WithProcessor(kOneText);
  const auto whole = (*tokenizer)->EncodeWhole("a", std::nullopt, 0);
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().message, "at most 0 tokens are too few for the 1 special ones");
  EXPECT_EQ((*tokenizer)->EncodeWhole("ab", std::nullopt, 1)->ids, std::vector<int32_t>({2}));
}

TEST(Whole, RefusesTemplatesWithATextThatIsNotThere) {
  const auto second = WithProcessor(R"({"type": "TemplateProcessing",
      "single": [{"Sequence": {"id": "B"}}], "special_tokens": {}})");
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("'single' names a second text"));
  const auto third = WithProcessor(R"({"type": "TemplateProcessing",
      "single": [{"Sequence": {"id": "A"}}], "pair": [{"Sequence": {"id": "C"}}]})");
  ASSERT_FALSE(third);
  EXPECT_THAT(third.error().message, HasSubstr("names text 'C', want A or B"));
}

// A template may repeat a text, so that cutting the text does not bound the tokens.
TEST(Whole, RefusesATemplateThatExceedsTheLength) {
  const auto tokenizer = WithProcessor(R"({"type": "TemplateProcessing",
      "single": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}], "special_tokens": {}})");
  const auto whole = (*tokenizer)->EncodeWhole("aaaa", std::nullopt, 4);
  ASSERT_FALSE(whole);
  EXPECT_THAT(whole.error().message, HasSubstr("8 tokens"));
}

}  // namespace
}  // namespace pinion
