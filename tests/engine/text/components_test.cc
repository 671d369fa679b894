// Every component type and option against what the reference library makes of small inputs
// (tests/data/text/components.jsonl, computed with tokenizers 0.23).

#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/text/decoder.h"
#include "engine/text/normalizer.h"
#include "engine/text/pre_tokenizer.h"
#include "tests/engine/text/text_cases.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

std::vector<Json> CasesOf(std::string_view kind) {
  std::vector<Json> cases;
  for (Json& c : ReadJsonLines(StrCat(tests::TestData(), "/text/components.jsonl")))
    if (c.Find("kind")->string() == kind) cases.push_back(std::move(c));
  return cases;
}

TEST(Components, NormalizeLikeTheReference) {
  const std::vector<Json> cases = CasesOf("normalizer");
  EXPECT_GT(cases.size(), 300u);
  for (const Json& c : cases) {
    const auto normalizer = MakeNormalizer(*c.Find("component"));
    ASSERT_TRUE(normalizer) << normalizer.error().message;
    std::string text = c.Find("text")->string();
    ASSERT_TRUE((*normalizer)(text));
    EXPECT_EQ(text, c.Find("want")->string()) << c.Dump();
  }
}

TEST(Components, CutLikeTheReference) {
  const std::vector<Json> cases = CasesOf("pre_tokenizer");
  EXPECT_GT(cases.size(), 1000u);
  for (const Json& c : cases) {
    const auto cut = MakePreTokenizer(*c.Find("component"));
    ASSERT_TRUE(cut) << cut.error().message;
    std::vector<Piece> pieces = {{c.Find("text")->string(), true}};
    ASSERT_TRUE((*cut)(pieces));
    Json words = Json::MakeArray();
    for (const Piece& piece : pieces) words.Append(piece.text);
    EXPECT_EQ(words.Dump(), c.Find("want")->Dump()) << c.Dump();
  }
}

TEST(Components, DecodeLikeTheReference) {
  const std::vector<Json> cases = CasesOf("decoder");
  EXPECT_GT(cases.size(), 100u);
  for (const Json& c : cases) {
    const auto plan = DecoderPlan::Make(*c.Find("component"));
    ASSERT_TRUE(plan) << plan.error().message;
    TokenDecoder decoder = plan->Start(StreamMode::kExact);
    std::string text;
    for (const Json& token : c.Find("tokens")->array()) text += decoder.Push(token.string());
    EXPECT_EQ(text + decoder.Finish(), c.Find("want")->string()) << c.Dump();
  }
}

// At each token a copy goes on while the decoder that it was made from takes other text.
TEST(Components, CopiesOfADecoderContinueOnTheirOwn) {
  for (const StreamMode mode : {StreamMode::kEager, StreamMode::kExact}) {
    for (const Json& c : CasesOf("decoder")) {
      const auto plan = DecoderPlan::Make(*c.Find("component"));
      ASSERT_TRUE(plan) << plan.error().message;
      TokenDecoder plain = plan->Start(mode);
      auto copied = std::make_unique<TokenDecoder>(plan->Start(mode));
      for (const Json& token : c.Find("tokens")->array()) {
        auto next = std::make_unique<TokenDecoder>(*copied);
        copied->Push("▁other</w>");
        copied->Push("<0xE2>");
        copied = std::move(next);
        ASSERT_EQ(copied->Push(token.string()), plain.Push(token.string())) << c.Dump();
      }
      EXPECT_EQ(copied->Finish(), plain.Finish()) << c.Dump();
    }
  }
}

TEST(Components, WorkTogetherLikeTheReference) {
  const std::vector<Json> cases = CasesOf("tokenizer");
  EXPECT_GT(cases.size(), 15u);
  for (const Json& group : cases) {
    const auto tokenizer = MakeTokenizer(*group.Find("component"), Json());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (const Json& c : group.Find("cases")->array()) {
      SCOPED_TRACE(StrCat(group.Find("name")->string(), ": ", c.Dump()));
      const std::string& text = c.Find("text")->string();
      const std::vector<int32_t> ids = ReadIds(*c.Find("ids"));
      const std::vector<int32_t> plain = ReadIds(*c.Find("ids_no_special"));
      EXPECT_EQ((*tokenizer)->Encode(text, true), ids);
      EXPECT_EQ((*tokenizer)->Encode(text, false), plain);
      EXPECT_EQ((*tokenizer)->Decode(plain, false), c.Find("decoded")->string());
      EXPECT_EQ((*tokenizer)->Decode(ids, true), c.Find("decoded_skip")->string());
    }
  }
}

}  // namespace
}  // namespace pinion
