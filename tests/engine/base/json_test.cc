#include "engine/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pinion {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Json MustParse(std::string_view text) {
  auto parsed = Json::Parse(text);
  EXPECT_TRUE(parsed) << text << ": " << (parsed ? "" : parsed.error().message);
  return parsed ? *parsed : Json();
}

std::string ErrorOf(std::string_view text) {
  const auto parsed = Json::Parse(text);
  EXPECT_FALSE(parsed) << text;
  if (parsed) return "";
  EXPECT_EQ(parsed.error().code, ErrorCode::kCorrupt);
  return parsed.error().message;
}

TEST(Json, ReadsBackItsOwnText) {
  const std::string text =
      R"({"z":[1,-2,2.5,true,false,null],"a":{"nested":{"empty":[],"none":{}}},"s":"\"\\\n\u0001é😀"})";
  const Json value = MustParse(text);
  EXPECT_EQ(value.Dump(), text);
  EXPECT_EQ(MustParse(value.Dump(2)), value);
}

TEST(Json, KeepsTheOrderOfKeys) {
  const Json value = MustParse(R"({"b":1,"a":2,"c":3})");
  EXPECT_EQ(value.object()[0].first, "b");
  EXPECT_EQ(value.Dump(), R"({"b":1,"a":2,"c":3})");
}

TEST(Json, TellsIntegersFromReals) {
  EXPECT_TRUE(MustParse("5").is_int());
  EXPECT_FALSE(MustParse("5.0").is_int());
  EXPECT_TRUE(MustParse("5.0").is_number());
  EXPECT_EQ(MustParse("5").number(), 5.0);
  EXPECT_EQ(MustParse("9223372036854775807").integer(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(MustParse("-9223372036854775808").integer(), std::numeric_limits<int64_t>::min());
  EXPECT_FALSE(MustParse("18446744073709551615").is_int());
  EXPECT_EQ(MustParse("18446744073709551615").number(), 18446744073709551615.0);
  EXPECT_TRUE(Json(uint64_t{7}).is_int());
}

TEST(Json, ReadsBackRealsExactly) {
  for (double value : {0.1, -1e-308, 1.7976931348623157e308, 5e-324, 1.0 / 3}) {
    EXPECT_EQ(MustParse(Json(value).Dump()).number(), value);
  }
}

TEST(Json, WritesNullForNanAndInfinity) {
  EXPECT_EQ(Json(std::nan("")).Dump(), "null");
  EXPECT_EQ(Json(-std::numeric_limits<double>::infinity()).Dump(), "null");
}

TEST(Json, RefusesTextThatIsNotJson) {
  for (const char* bad :
       {"", " ", "{", "[1,]", "{\"a\":}", "{a:1}", "01", "1 2", "[1] x", "nul", "'a'", "\"\t\"",
        "\"\\x\"", "\"\\ud800\"", "NaN", "1e999", "\"abc", "\xff", "\"\xc3\x28\""})
    EXPECT_THAT(ErrorOf(bad), HasSubstr("not valid JSON")) << bad;
  EXPECT_THAT(ErrorOf("[1, 2, x]"), HasSubstr("byte 8"));
}

TEST(Json, RefusesANulWhereverItIs) {
  const std::string nul(1, '\0');
  EXPECT_THAT(ErrorOf("{}" + nul), HasSubstr("at byte 3 (a NUL)"));
  EXPECT_THAT(ErrorOf("{}" + nul + "{\"a\":1}"), HasSubstr("at byte 3 (a NUL)"));
  for (const std::string& text : {nul, "{" + nul + "}", "[1," + nul + "2]", "\"a" + nul + "\""})
    EXPECT_THAT(ErrorOf(text), HasSubstr("not valid JSON"));
}

TEST(Json, BoundsTheDepth) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(MustParse(nested(200)).Dump(), nested(200));
  EXPECT_THAT(ErrorOf(nested(201)), HasSubstr("200 levels"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, '[')), HasSubstr("200 levels"));
}

TEST(Json, FindsTheLastOfRepeatedKeys) {
  const Json value = MustParse(R"({"a":1,"b":2,"a":3})");
  EXPECT_EQ(value.Find("a")->integer(), 3);
  EXPECT_EQ(value.object().size(), 3u);
  EXPECT_EQ(value.Find("c"), nullptr);
  EXPECT_EQ(Json(1).Find("a"), nullptr);
}

TEST(Json, SetsAndAppends) {
  Json object, array;
  object.Set("a", 1);
  object.Set("b", "x");
  object.Set("a", std::vector<int>{1, 2});
  array.Append(std::move(object));
  array.Append(nullptr);
  EXPECT_EQ(array.Dump(), R"([{"a":[1,2],"b":"x"},null])");
}

TEST(Json, ErrorsAreUtf8ForAnyText) {
  EXPECT_THAT(Json::Parse("\"\xff\"").error().message,
              AllOf(HasSubstr("\xEF\xBF\xBD"), Not(HasSubstr("\xff"))));
}

TEST(Json, ReplacesInvalidUtf8WhenWriting) {
  EXPECT_EQ(Json(std::string("a\xff"
                             "b"))
                .Dump(),
            "\"a\xEF\xBF\xBD"
            "b\"");
}

TEST(Json, IsLinearInTheNumberOfKeys) {
  std::string text = "{";
  for (int i = 0; i < 150'000; ++i) text += StrCat(i ? "," : "", '"', i, "\":", i);
  text += "}";  // quadratic work on so many keys would take minutes
  EXPECT_EQ(MustParse(text).Dump(), text);
}

TEST(Json, RequireNamesKeyAndValue) {
  const Json value = MustParse(R"({"n":3,"r":1.5,"s":"x","big":3000000000,"none":null,"b":true})");
  EXPECT_EQ(Require<int>(value, "n").value(), 3);
  EXPECT_EQ(Require<double>(value, "n").value(), 3.0);
  EXPECT_EQ(Require<std::string>(value, "s").value(), "x");
  EXPECT_EQ(Require<int64_t>(value, "big").value(), 3'000'000'000);
  EXPECT_TRUE(Require<bool>(value, "b").value());
  EXPECT_THAT(Require<int>(value, "big").error().message, HasSubstr("below 2^31"));
  EXPECT_THAT(Require<int>(value, "r").error().message, AllOf(HasSubstr("'r'"), HasSubstr("1.5")));
  EXPECT_THAT(Require<int>(value, "none").error().message, HasSubstr("missing"));
  EXPECT_THAT(Require<int>(value, "absent").error().message, HasSubstr("'absent' is missing"));
}

TEST(Json, OptionalFallsBackOnlyIfTheValueIsAbsentOrNull) {
  const Json value = MustParse(R"({"n":3,"none":null})");
  EXPECT_EQ(Optional<int>(value, "n", 7).value(), 3);
  EXPECT_EQ(Optional<int>(value, "none", 7).value(), 7);
  EXPECT_EQ(Optional<int>(value, "absent", 7).value(), 7);
  EXPECT_FALSE(Optional<std::string>(value, "n", "x"));
}

TEST(JsonDeathTest, MisreadingATypeIsABug) {
  EXPECT_DEATH(Json("x").integer(), "check failed.*string");
}

}  // namespace
}  // namespace pinion
