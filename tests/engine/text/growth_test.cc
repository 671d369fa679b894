// The limit on how far an untrusted tokenizer may enlarge a text: chains of steps that double it
// end with an error, not with the machine's memory. The chains here are so short that they would
// pass without a limit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "engine/base/strings.h"
#include "engine/text/tokenizer.h"

namespace pinion {
namespace {

using testing::HasSubstr;

std::string Repeated(std::string_view text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

// A Sequence of `step`, 20 times: half of them in Sequences of their own.
std::string Chain(std::string_view key, std::string_view step) {
  std::vector<std::string> steps;
  for (int i = 0; i < 20; ++i)
    steps.push_back(i % 2 == 0 ? std::string(step)
                               : StrCat(R"({"type": "Sequence", ")", key, "\": [", step, "]}"));
  return StrCat(R"({"type": "Sequence", ")", key, "\": [", Join(steps, ", "), "]}");
}

Result<std::unique_ptr<Tokenizer>> TokenizerWith(std::string_view key, std::string_view part) {
  PINION_ASSIGN(const Json json, Json::Parse(StrCat(R"({"model": {"type": "BPE", "merges": [],
                                     "vocab": {"a": 0, "Ã": 1, "b": 2}}, ")",
                                                    key, "\": ", part, "}")));
  return MakeTokenizer(json, Json());
}

// The error of encoding `text`.
std::string ErrorOf(std::string_view key, std::string_view part, std::string_view text) {
  const auto tokenizer = TokenizerWith(key, part);
  if (!tokenizer) return tokenizer.error().message;
  const auto ids = (*tokenizer)->Encode(text, true);
  return ids ? "no error" : ids.error().message;
}

constexpr const char* kDoubling =
    R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";

TEST(Growth, EndsNormalizersThatDouble) {
  const std::string error = ErrorOf("normalizer", Chain("normalizers", kDoubling), "aa");
  EXPECT_EQ(error,
            "the normalizer would make 8192 bytes of 2, more than 32 times as many and 4096: the "
            "tokenizer is broken, take the one that the model was published with");
  EXPECT_THAT(ErrorOf("normalizer", Chain("normalizers", R"({"type": "ByteLevel"})"), "é"),
              HasSubstr("the normalizer would make"));
}

TEST(Growth, EndsASingleStepBeforeItWrites) {
  const std::string much(5000, 'b');
  const auto replace = [&](std::string_view pattern) {
    return StrCat(R"({"type": "Replace", "pattern": )", pattern, R"(, "content": ")", much, "\"}");
  };
  const std::string text(100, 'a');
  EXPECT_THAT(ErrorOf("normalizer", replace(R"({"String": "a"})"), text),
              HasSubstr("would make 500000 bytes of 100"));
  EXPECT_THAT(ErrorOf("normalizer", replace(R"({"Regex": "a??"})"), text),
              HasSubstr("would make 505100 bytes of 100"));
  EXPECT_THAT(
      ErrorOf("normalizer", StrCat(R"({"type": "Prepend", "prepend": ")", much, "\"}"), "a"),
      HasSubstr("would make 5001 bytes of 1"));
}

// A charsmap whose only rule makes `text` of "a", as Darts-clone lays out its trie, in base64.
std::string CharsmapOfA(std::string_view text) {
  std::vector<uint32_t> trie(512);
  trie[0] = 256 << 10;                       // children of the root: at 256 ^ their byte
  trie[256 ^ 'a'] = 3 << 10 | 1 << 8 | 'a';  // has a value, 3 further
  trie[256 ^ 'a' ^ 3] = uint32_t{1} << 31;   // at 0 of the replacements
  const auto trie_bytes = static_cast<uint32_t>(trie.size() * sizeof trie[0]);
  std::string bytes(sizeof trie_bytes + trie_bytes, '\0');
  std::memcpy(bytes.data(), &trie_bytes, sizeof trie_bytes);
  std::memcpy(bytes.data() + sizeof trie_bytes, trie.data(), trie_bytes);
  bytes += text;
  while (bytes.size() % 3 != 0) bytes += '\0';
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string base64;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t b = 0; b < 3; ++b) bits = bits << 8 | static_cast<unsigned char>(bytes[i + b]);
    for (int shift = 18; shift >= 0; shift -= 6) base64 += kDigits[bits >> shift & 63];
  }
  return base64;
}

TEST(Growth, EndsCharsmaps) {
  const auto precompiled = [](std::string_view replacement) {
    return StrCat(R"({"type": "Precompiled", "precompiled_charsmap": ")", CharsmapOfA(replacement),
                  "\"}");
  };
  EXPECT_EQ(ErrorOf("normalizer", precompiled("bb"), "aaa"), "no error");
  EXPECT_EQ(*(*TokenizerWith("normalizer", precompiled("bb")))->Encode("a", false),
            (std::vector<int32_t>{2, 2}));
  EXPECT_THAT(ErrorOf("normalizer", precompiled(std::string(2000, 'b')), "aaaa"),
              HasSubstr("would make 6000 bytes of 4"));
}

TEST(Growth, EndsPreTokenizers) {
  const char* bytes = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
  EXPECT_THAT(ErrorOf("pre_tokenizer", Chain("pretokenizers", bytes), "é"),
              HasSubstr("the pre-tokenizer would make 8192 bytes of 2"));
}

TEST(Growth, EndsPostProcessors) {
  const char* twice = R"({"type": "TemplateProcessing", "special_tokens": {},
                          "single": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}]})";
  EXPECT_THAT(ErrorOf("post_processor", Chain("processors", twice), "aa"),
              HasSubstr("the post-processor would make 8192 tokens of 2"));
}

TEST(Growth, RefusesDecodersThatCouldDouble) {
  EXPECT_THAT(ErrorOf("decoder", Chain("decoders", kDoubling), "a"),
              HasSubstr("the decoder would make"));
  const char* between = R"({"type": "Replace", "pattern": {"Regex": "x?"}, "content": "aaaa"})";
  EXPECT_THAT(ErrorOf("decoder", Chain("decoders", between), "a"),
              HasSubstr("the decoder would make"));
  const char* tidying = R"({"type": "Replace", "pattern": {"Regex": " \\."}, "content": "."})";
  EXPECT_EQ(ErrorOf("decoder", Chain("decoders", tidying), "a"), "no error");
}

TEST(Growth, RefusesTokensOfAbsurdLength) {
  const auto with = [](size_t length) {
    return ErrorOf("added_tokens",
                   StrCat(R"([{"id": 7, "content": ")", std::string(length, 'x'), "\"}]"), "a");
  };
  EXPECT_EQ(with(16384), "no error");
  EXPECT_EQ(with(16385), "token 7 has 16385 bytes, want at most 16384");
}

TEST(Growth, LeavesRoomForTheGrowthOfHonestSteps) {
  const auto tokenizer = TokenizerWith("normalizer", R"({"type": "Sequence", "normalizers": [
      {"type": "NFKC"}, {"type": "ByteLevel"}, {"type": "Prepend", "prepend": "a"}]})");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_TRUE((*tokenizer)->Encode(Repeated("ﷺ", 10'000), false));
}

}  // namespace
}  // namespace pinion
