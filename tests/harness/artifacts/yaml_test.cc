#include "harness/artifacts/yaml.h"

#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

TEST(YamlText, IsQuotedWithoutCharactersThatEndALineInYaml) {
  EXPECT_EQ(YamlText("a: b # c"), R"("a: b # c")");
  EXPECT_EQ(YamlText("\"'\n\t\\"), R"("\"'\n\t\\")");
  EXPECT_EQ(YamlText("\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80"),
            "\"\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80\"");
  EXPECT_EQ(YamlText("\x7F\xC2\x85\xC2\x9F\xC2\xA0"), "\"\\u007f\\u0085\\u009f\xC2\xA0\"");
  EXPECT_EQ(YamlText("\xE2\x80\xA8\xE2\x80\xA9\xEF\xBB\xBF\xEF\xBF\xBE"),
            R"("\u2028\u2029\ufeff\ufffe")");
  EXPECT_EQ(YamlSafeLine("a\n\tb\x7F\"c"), "a  b\\u007f\"c");
}

TEST(YamlSafeJson, IsTheSameDocument) {
  const Json value = Json::Object{{"a\x7F", "\xC2\x85 \xE2\x80\xA8"}};
  const std::string text = YamlSafeJson(value, 2);
  EXPECT_EQ(text, "{\n  \"a\\u007f\": \"\\u0085 \\u2028\"\n}");
  EXPECT_EQ(*Json::Parse(text), value);
}

}  // namespace
}  // namespace pinion::harness
