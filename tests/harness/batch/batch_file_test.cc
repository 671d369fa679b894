#include "harness/batch/batch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json Line(const std::string& id, const char* url = "/v1/completions", const char* body = "{}") {
  return Json::Object{
      {"custom_id", id}, {"method", "POST"}, {"url", url}, {"body", *Json::Parse(body)}};
}

TEST(BatchFile, ReadsRequestsInTheirOrder) {
  const auto batch =
      ReadBatch({Line("b", "/v1/chat/completions", R"({"n":2,"stream":false})"), Line("a")});
  ASSERT_TRUE(batch) << batch.error().message;
  EXPECT_EQ((*batch)[0].custom_id + (*batch)[1].custom_id, "ba");
  EXPECT_EQ((*batch)[0].url, "/v1/chat/completions");
  EXPECT_EQ((*batch)[0].body.Find("n")->integer(), 2);
}

TEST(BatchFile, NamesTheLineAndTheKeyThatIsWrong) {
  const auto error = [](const Json& second) {
    const auto batch = ReadBatch({Line("first"), second});
    return batch ? std::string() : batch.error().message;
  };
  const auto changed = [](const char* key, Json value) {
    Json line = Line("x");
    line.Set(key, std::move(value));
    return line;
  };
  EXPECT_EQ(error(Line("x")), "");
  EXPECT_THAT(error(Line("first")), HasSubstr("the custom_id 'first' as well"));
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, Json>>{{"custom_id", 3},
                                                 {"custom_id", ""},
                                                 {"method", "GET"},
                                                 {"url", "https://api.openai.com/v1/completions"},
                                                 {"url", "/v1/completions HTTP/1.1\r\nX: y"},
                                                 {"body", "text"},
                                                 {"body", Json()}}) {
    EXPECT_THAT(error(changed(key, value)), HasSubstr("request 2 of the batch")) << key;
    EXPECT_THAT(error(changed(key, value)), HasSubstr(StrCat("'", key, "'"))) << key;
  }
  EXPECT_THAT(error(Line("x", "/v1/completions", R"({"stream":true})")), HasSubstr("'stream'"));
}

TEST(BatchFile, ALineHasAResponseOrAnError) {
  const Json good = BatchLine("a", {200, *Json::Parse(R"({"id":"cmpl-1","x":1})"), ""});
  EXPECT_EQ(good.Find("custom_id")->string(), "a");
  EXPECT_EQ(good.Find("response")->Find("status_code")->integer(), 200);
  EXPECT_EQ(good.Find("response")->Find("request_id")->string(), "cmpl-1");
  EXPECT_EQ(good.Find("response")->Find("body")->Find("x")->integer(), 1);
  EXPECT_TRUE(good.Find("error")->is_null());
  const Json refused = BatchLine("b", {400, *Json::Parse(R"({"error":{"message":"no"}})"), "no"});
  EXPECT_EQ(refused.Find("response")->Find("status_code")->integer(), 400);
  EXPECT_TRUE(refused.Find("response")->Find("request_id")->is_null());
  const Json lost = BatchLine("c", {0, {}, "the server is gone"});
  EXPECT_TRUE(lost.Find("response")->is_null());
  EXPECT_EQ(lost.Find("error")->Find("message")->string(), "the server is gone");
}

TEST(BatchFile, AnEarlierRunsWholeAnswersAreKept) {
  const std::string good = BatchLine("a", {200, Json::MakeObject(), ""}).Dump(),
                    refused = BatchLine("b", {404, Json(), "no"}).Dump(),
                    lost = BatchLine("c", {0, Json(), "gone"}).Dump();
  const auto kept = AnsweredLines(good + "\n" + lost + "\n" + refused + "\nno json\n" +
                                  good.substr(0, good.size() / 2));
  EXPECT_THAT(kept, ElementsAre(*Json::Parse(good), *Json::Parse(refused)));
  EXPECT_THAT(CustomIdsOf(kept), ElementsAre("a", "b"));
  EXPECT_TRUE(AnsweredLines(good).empty()) << "its end was never written";
}

}  // namespace
}  // namespace pinion::harness
