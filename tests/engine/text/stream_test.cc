// Growing lists of tokens: characters stay whole, stop strings are found, nothing is lost.

#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/text/tokenizer.h"

namespace pinion {
namespace {

// Tokens are given by their text: those of `pieces`, with byte fallback for everything.
std::unique_ptr<Tokenizer> ByteTokenizer(const std::vector<std::string>& pieces) {
  Json vocabulary = Json::MakeObject();
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    vocabulary.Set(name, byte);
  }
  for (const std::string& piece : pieces)
    vocabulary.Set(piece, static_cast<int64_t>(vocabulary.object().size()));
  const auto decoder = Json::Parse(R"({"type": "Sequence", "decoders": [
      {"type": "ByteFallback"}, {"type": "Fuse"}]})");
  Json json = Json::Object{{"model", Json::Object{{"type", "BPE"},
                                                  {"byte_fallback", true},
                                                  {"vocab", vocabulary},
                                                  {"merges", Json::MakeArray()}}},
                           {"decoder", *decoder}};
  return std::move(*MakeTokenizer(json, Json()));
}

class Stream : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = ByteTokenizer({"a", "b", "stop", "st", "op", " "});
  std::vector<int32_t> Ids(const std::string& bytes) {
    std::vector<int32_t> ids;
    for (char c : bytes) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  PrimedText Primed(const std::string& prompt_bytes) {
    return PrimedText(*tokenizer_, Ids(prompt_bytes), true, /*whole=*/true);
  }
  int32_t Id(std::string_view token) { return *tokenizer_->TokenId(token); }
  // The text that each token of `tokens` releases, joined by '|'; the end after a last '|'.
  std::string Run(OutputText& text, const std::vector<std::string>& tokens) {
    std::vector<std::string> parts;
    for (const std::string& token : tokens) parts.push_back(text.Push(Id(token)));
    parts.push_back(text.Finish());
    return Join(parts, "|");
  }
};

TEST_F(Stream, GivesACharacterWithItsLastByte) {
  StreamDecoder stream(*tokenizer_, {});
  std::vector<std::string> parts;
  for (int32_t id : Ids("é€a")) parts.push_back(stream.Push(id));
  EXPECT_EQ(Join(parts, "|"), "|é|||€|a");
  EXPECT_EQ(stream.Flush(), "");
}

TEST_F(Stream, ReplacesAnIncompleteTailAtTheEnd) {
  StreamDecoder stream(*tokenizer_, {});
  std::string text;
  for (int32_t id : Ids("\xE2\x82")) text += stream.Push(id);
  EXPECT_EQ(text, "");
  EXPECT_EQ(stream.Flush(), "\uFFFD\uFFFD");  // one for each byte token
}

TEST_F(Stream, FinishesACharacterThatThePromptBegan) {
  StreamDecoder stream(*tokenizer_, Ids("a\xC3"));
  EXPECT_EQ(stream.Push(0xA9), "é");
}

TEST_F(Stream, SkipsIdsOutsideTheVocabulary) {
  StreamDecoder stream(*tokenizer_, {});
  EXPECT_EQ(stream.Push(1'000'000), "");
  EXPECT_EQ(stream.Push(-1), "");
  EXPECT_EQ(stream.Push(Id("a")), "a");
}

TEST_F(Stream, IsExactAboutInvalidRunsOnlyIfNothingWasReleased) {
  const std::vector<int32_t> ids = Ids("A\xFF");
  StreamDecoder eager(*tokenizer_, {});
  EXPECT_EQ(eager.Push(ids[0]), "A");
  EXPECT_EQ(eager.Push(ids[1]), "\uFFFD");
  StreamDecoder exact(*tokenizer_, {}, true, Tokenizer::StreamMode::kExact);
  EXPECT_EQ(exact.Push(ids[0]), "");
  EXPECT_EQ(exact.Push(ids[1]), "");
  EXPECT_EQ(exact.Flush(), "\uFFFD\uFFFD");
  OutputText text(Primed({}), {}, false, 0);
  for (int32_t id : ids) text.Push(id);
  text.Finish();
  EXPECT_EQ(text.whole(), tokenizer_->Decode(ids, true));
}

TEST_F(Stream, HoldsBackTextThatMayBecomeAStopString) {
  OutputText text(Primed({}), {"stop"}, false, 0);
  EXPECT_EQ(Run(text, {"a", "st", "a", "b"}), "a||sta|b|");
  EXPECT_FALSE(text.stopped());
}

TEST_F(Stream, CutsAtAStopStringAcrossTokens) {
  OutputText text(Primed({}), {"stop"}, false, 0);
  EXPECT_EQ(Run(text, {"a", "st", "op", "b"}), "a||||");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.stop_string(), "stop");
  EXPECT_EQ(text.whole(), "a");
}

TEST_F(Stream, KeepsTheStopStringIfAsked) {
  OutputText text(Primed({}), {"top"}, true, 0);
  EXPECT_EQ(Run(text, {"a", "stop"}), "a|stop|");
}

TEST_F(Stream, TakesTheEarliestOfSeveralStopStrings) {
  OutputText text(Primed({}), {"op", "b", "st"}, false, 0);
  EXPECT_EQ(Run(text, {"a", "stop", "b"}), "a|||");
  EXPECT_EQ(text.stop_string(), "st");
}

TEST_F(Stream, DoesNotStopBeforeMinTokens) {
  OutputText text(Primed({}), {"stop"}, false, 2);
  EXPECT_EQ(Run(text, {"stop", "a", "stop", "b"}), "stop|a|||");
  EXPECT_TRUE(text.stopped());
}

TEST_F(Stream, ReleasesHeldTextAtTheEnd) {
  OutputText text(Primed({}), {"stop"}, false, 0);
  EXPECT_EQ(Run(text, {"a", "st"}), "a||st");
}

TEST_F(Stream, IgnoresEmptyStopStrings) {
  OutputText text(Primed({}), {""}, false, 0);
  EXPECT_EQ(Run(text, {"a", "b"}), "a|b|");
}

// A tokenizer that counts the tokens its streams are given.
class CountingTokenizer : public Tokenizer {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view, bool) const override { return {}; }
  std::string Decode(std::span<const int32_t>, bool) const override { return ""; }
  std::unique_ptr<TokenStream> Stream(bool, StreamMode) const override {
    return std::make_unique<Counting>(pushed);
  }
  std::string TokenText(int32_t) const override { return ""; }
  std::optional<int32_t> TokenId(std::string_view) const override { return {}; }
  bool is_special(int32_t) const override { return false; }
  size_t vocabulary_size() const override { return 0; }

  mutable size_t pushed = 0;

 private:
  struct Counting : TokenStream {
    explicit Counting(size_t& count) : count(count) {}
    std::string Push(int32_t) override { return ++count, ""; }
    std::string Finish() override { return ""; }
    std::unique_ptr<TokenStream> Clone() const override {
      return std::make_unique<Counting>(*this);
    }
    size_t& count;
  };
};

TEST(PrimedText, ReadsThePromptOncePerPrompt) {
  const CountingTokenizer tokenizer;
  const std::vector<int32_t> prompt(1000);
  for (const bool whole : {false, true}) {
    tokenizer.pushed = 0;
    const PrimedText primed(tokenizer, prompt, true, whole);
    for (int choice = 0; choice < 100; ++choice) OutputText(primed, {}, false, 0).Push(1);
    EXPECT_EQ(tokenizer.pushed, whole ? 2 * 1000u + 2 * 100u : 1000u + 100u);
  }
}

TEST_F(Stream, OutputsOfOnePromptDoNotShareTheirState) {
  const PrimedText primed = Primed("a\xE2");  // "€" begins
  OutputText first(primed, {}, false, 0), second(primed, {}, false, 0);
  EXPECT_EQ(first.Push(0x82), "");
  EXPECT_EQ(second.Push(Id("b")), "\uFFFDb");
  EXPECT_EQ(first.Push(0xAC), "€");
  OutputText third(primed, {}, false, 0);
  EXPECT_EQ(third.Push(0x82), "");
  EXPECT_EQ(third.Push(0xAC), "€");
}

}  // namespace
}  // namespace pinion
