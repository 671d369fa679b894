#include "engine/text/unicode.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/strings.h"
#include "engine/text/utf8.h"
#include "tests/engine/text/text_cases.h"

namespace pinion {
namespace {

TEST(Unicode, NormalizesLikeTheReference) {
  const std::string path = FixturesFolder() + "/text/unicode/normalize.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no reference data in " << path;
  const std::vector<Json> cases = ReadJsonLines(path);
  EXPECT_GT(cases.size(), 100u);
  for (const Json& c : cases) {
    const std::string& text = c.Find("text")->string();
    EXPECT_EQ(NormalizeUnicode(text, UnicodeForm::kNfc), c.Find("NFC")->string()) << c.Dump();
    EXPECT_EQ(NormalizeUnicode(text, UnicodeForm::kNfd), c.Find("NFD")->string()) << c.Dump();
    EXPECT_EQ(NormalizeUnicode(text, UnicodeForm::kNfkc), c.Find("NFKC")->string()) << c.Dump();
    EXPECT_EQ(NormalizeUnicode(text, UnicodeForm::kNfkd), c.Find("NFKD")->string()) << c.Dump();
  }
}

TEST(Utf8, ReplacesMaximalSubparts) {
  EXPECT_EQ(SanitizeUtf8("a\xF0\x9F\x98z\xE2\x82"), "a\uFFFDz\uFFFD");
  EXPECT_EQ(SanitizeUtf8("\xC0\x80\xED\xA0\x80\xF4\x90"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(SanitizeUtf8("plain é 😀"), "plain é 😀");
}

TEST(Utf8, WritesTheCharactersThatItReads) {
  for (char32_t c :
       {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xE000u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    const std::string text = ToUtf8(c);
    const Utf8Step step = DecodeUtf8(text);
    EXPECT_EQ(step.code_point, c);
    EXPECT_EQ(step.length, text.size());
    EXPECT_EQ(Utf8Length(text[0]), text.size());
    for (size_t cut = 1; cut < text.size(); ++cut)
      EXPECT_EQ(DecodeUtf8(text.substr(0, cut)).kind, Utf8Step::Kind::kIncomplete);
  }
}

}  // namespace
}  // namespace pinion
