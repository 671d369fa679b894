#include "engine/base/json_text.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace pinion {
namespace {

Json Parsed(std::string_view text) {
  auto parsed = Json::Parse(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Json();
}

TEST(JsonText, MergesObjectsByTheLastValueInTheFirstPlace) {
  const Json merged = MergeObjects(
      {Parsed(R"({"b":1,"a":2})").object(), Parsed(R"({"c":3,"a":4,"c":5})").object()});
  EXPECT_EQ(merged.Dump(), R"({"b":1,"a":4,"c":5})");
  EXPECT_EQ(MergeObjects({}).Dump(), "{}");
}

TEST(JsonText, AppendsAnyStringAsDumpWritesIt) {
  constexpr std::string_view kBytes =
      "ab\"\\/"
      "\n\x01\x1f\x7f\x80\xa0\xbf\xc2\xc3\xa9\xe0\xe2\x82\xac\xed\xf0\x9f\x98\x80\xf4\x90\xf5\xff";
  std::mt19937 random(20261122);
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (size_t i = random() % 12; i > 0; --i)
      text += random() % 16 == 0  ? std::string(1, '\0')
              : random() % 4 == 0 ? std::string("é€😀\xf4\x8f\xbf\xbf")
                                  : std::string(1, kBytes[random() % kBytes.size()]);
    std::string out = "before ";
    AppendJsonString(out, text);
    ASSERT_EQ(out, "before " + Json(text).Dump());
  }
}

TEST(JsonText, ExcerptsAreCutBetweenCharacters) {
  EXPECT_EQ(Excerpt(Parsed(R"({"a":[1,"x",null]})")), R"({"a":[1,"x",null]})");
  EXPECT_EQ(Excerpt(Json("123456789"), 11), "\"123456789\"");
  EXPECT_EQ(Excerpt(Json("123456789"), 10), "\"123456...");
  EXPECT_EQ(Excerpt(Json("ééééé"), 9), "\"éé...");
  const std::string long_key(1000, 'k');
  Json object = Json::MakeObject();
  object.Set(long_key, 1);
  EXPECT_EQ(Excerpt(object, 10), "{\"kkkkk...");
  EXPECT_EQ(Excerpt(Json(Json::Array(1000, Json(1))), 10), "[1,1,1,...");
}

}  // namespace
}  // namespace pinion
