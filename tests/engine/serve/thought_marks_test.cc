#include "engine/serve/thought_marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/serve/fakes.h"

namespace pinion {
namespace {

using ::testing::Contains;
using ::testing::Not;

std::vector<int32_t> Bytes(const std::string& text) { return *ByteTokenizer().Encode(text, false); }

std::optional<ThoughtMarks> Find(const std::string& name, const Tokenizer& tokenizer) {
  return ThoughtMarks::Find(ChooseOutputFormat("none", name, {})->thoughts, tokenizer, 257);
}

TEST(ThoughtMarks, AreTheTokensOfTheFormatsMarks) {
  const ByteTokenizer tokenizer;
  const ThoughtRules rules = Find("mistral", tokenizer)->rules();
  EXPECT_EQ(rules.begin, Bytes("[THINK]"));
  EXPECT_EQ(rules.end, Bytes("[/THINK]"));
  EXPECT_EQ(rules.forced, rules.end);
  EXPECT_FALSE(rules.anywhere);
  EXPECT_EQ(rules.budget, -1);
  EXPECT_THAT(rules.blank, Contains(' '));
  EXPECT_THAT(rules.blank, Contains('\n'));
  EXPECT_THAT(rules.blank, Not(Contains('x')));
  EXPECT_THAT(rules.blank, Not(Contains(256))) << "a special token is no white space";
}

TEST(ThoughtMarks, OfHarmonyBeginTheAnswer) {
  const ByteTokenizer tokenizer;
  const ThoughtRules rules = Find("openai_gptoss", tokenizer)->rules();
  EXPECT_EQ(rules.begin, Bytes("<|channel|>analysis<|message|>"));
  EXPECT_EQ(rules.end, Bytes("<|end|>"));
  EXPECT_EQ(rules.forced, Bytes("<|end|><|start|>assistant<|channel|>final<|message|>"));
  EXPECT_TRUE(rules.anywhere);
}

// Its vocabulary has the end mark of reasoning as one token, which it writes otherwise in a text.
class MarkTokenizer : public ByteTokenizer {
 public:
  std::optional<int32_t> TokenId(std::string_view text) const override {
    return text == "</think>" ? std::optional<int32_t>(7) : std::nullopt;
  }
  std::string Decode(std::span<const int32_t> ids, bool skip) const override {
    return ids.size() == 1 && ids[0] == 7 ? "</think>" : ByteTokenizer::Decode(ids, skip);
  }
};

TEST(ThoughtMarks, AreSingleTokensIfThereAreSuch) {
  const MarkTokenizer tokenizer;
  EXPECT_EQ(Find("qwen3", tokenizer)->rules().end, std::vector<int32_t>{7});
}

TEST(ThoughtMarks, NeedAVocabularyThatCanWriteThem) {
  const ByteTokenizer tokenizer;
  EXPECT_FALSE(Find("none", tokenizer));
  const ThoughtFormat* format = ChooseOutputFormat("none", "qwen3", {})->thoughts;
  EXPECT_FALSE(ThoughtMarks::Find(format, tokenizer, 'k')) << "'think' has an 'n'";
  EXPECT_TRUE(ThoughtMarks::Find(format, tokenizer, 'z'));
}

TEST(ThoughtMarks, TellHowMuchAPromptHasThought) {
  const ByteTokenizer tokenizer;
  const ThoughtMarks marks = *Find("qwen3", tokenizer);
  const auto tokens = [&](const std::string& prompt) { return marks.TokensIn(Bytes(prompt)); };
  EXPECT_EQ(tokens("Why?<think>"), 0);
  EXPECT_EQ(tokens("<think>\n"), 1);
  EXPECT_EQ(tokens("<think>no</think><think>abc"), 3);
  EXPECT_EQ(tokens("Why?"), -1);
  EXPECT_EQ(tokens("<think>\n\n</think>\n\n"), -1);
  EXPECT_EQ(tokens(""), -1);
  std::vector<int32_t> message = Bytes("What is <think>?");
  message.push_back(256);  // the end of the message that asks it
  EXPECT_EQ(marks.TokensIn(message), -1);
}

}  // namespace
}  // namespace pinion
