#include "harness/load/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

using ::testing::HasSubstr;

ServerLoadPlan SmallPlan() {
  ServerLoadPlan plan;
  plan.url = ServerUrl::OfPort(8001);
  plan.style = {Endpoint::kChat, "m", false, 0.5, Json(Json::Object{{"top_k", 3}})};
  plan.conversations = {{"system", {{"one \"quoted\" line\n", 4}, {"two", 5}}},
                        {"", {{"three", 6}}}};
  plan.arrival_s = std::vector<double>{0, 0.25};
  plan.concurrency = 7;
  plan.stop_sending_s = 1.5;
  plan.last_deadline_s = 3;
  plan.longest = 512;
  plan.timeout_s = 9;
  plan.cpus = {1, 3};
  return plan;
}

TEST(Exchange, AnOrderComesBackAsItWas) {
  const ServerLoadPlan sent = SmallPlan();
  const auto read = ReadServerLoadPlan(*Json::Parse(ToJson(sent).Dump()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(ToJson(*read), ToJson(sent));
  EXPECT_EQ(read->url.text, sent.url.text);
  EXPECT_TRUE(read->url.is_local);
  const ServerLoadPlan& plan = *read;
  EXPECT_EQ(plan.style.endpoint, Endpoint::kChat);
  EXPECT_EQ(plan.style.extra_body, sent.style.extra_body);
  EXPECT_EQ(plan.conversations[0].turns[0].text, "one \"quoted\" line\n");
  EXPECT_EQ(plan.arrival_s, sent.arrival_s);
  EXPECT_EQ(plan.stop_sending_s, 1.5);
  EXPECT_EQ(plan.deadline_s, std::numeric_limits<double>::infinity());
  EXPECT_EQ(plan.last_deadline_s, 3);
  EXPECT_EQ(plan.cpus, sent.cpus);
}

TEST(Exchange, AClosedLoopHasNoArrivals) {
  ServerLoadPlan plan = SmallPlan();
  plan.arrival_s.reset();
  plan.last_deadline_s.reset();
  const auto read = ReadServerLoadPlan(*Json::Parse(ToJson(plan).Dump()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_FALSE(read->arrival_s);
  EXPECT_FALSE(read->last_deadline_s);
}

TEST(Exchange, AnOrderWithoutAPartIsRefusedByName) {
  for (const char* key : {"url", "style", "conversations", "concurrency", "longest"}) {
    Json json = ToJson(SmallPlan());
    Json::Object& fields = json.object();
    std::erase_if(fields, [&](const auto& field) { return field.first == key; });
    const auto read = ReadServerLoadPlan(json);
    ASSERT_FALSE(read) << key;
    EXPECT_THAT(read.error().message, HasSubstr(key));
  }
}

TEST(Exchange, AResultComesBackAsItWas) {
  RequestRecord complete;
  complete.conversation = 1;
  complete.turn = 2;
  complete.scheduled_ns = 5'000'000'123;
  complete.sent_ns = 5'000'100'123;
  complete.token_ns = {5'000'350'123, 5'000'350'123, 7'000'351'123};
  complete.ended_ns = 7'000'400'000;
  complete.output_len = 3;
  complete.prompt_tokens = 17;
  complete.output_tokens = 3;
  complete.cached_tokens = 0;
  complete.status = 200;
  RequestRecord cut;
  cut.sent_ns = 5'000'100'123;
  cut.error = "cut off";
  cut.cut = true;
  ServerLoadResult result;
  result.open_loop = true;
  result.start_ns = 5'000'000'000;
  result.end_ns = 8'000'000'000;
  result.requests = {complete, cut};
  result.most_at_once = 2;
  result.never_sent = 4;
  result.generator = {0.5, 0.25, {0.001}, {0.002, 0.003}, {0, 1}};
  const auto read = ReadServerLoadResult(*Json::Parse(ToJson(result).Dump()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->requests, result.requests);
  EXPECT_EQ(read->open_loop, true);
  EXPECT_EQ(read->start_ns, result.start_ns);
  EXPECT_EQ(read->end_ns, result.end_ns);
  EXPECT_EQ(read->most_at_once, 2u);
  EXPECT_EQ(read->never_sent, 4u);
  EXPECT_EQ(read->generator.cpu_s, 0.5);
  EXPECT_EQ(read->generator.cpu_share, 0.25);
  EXPECT_EQ(read->generator.late_s, result.generator.late_s);
  EXPECT_EQ(read->generator.lag_s, result.generator.lag_s);
  EXPECT_EQ(read->generator.cpus, result.generator.cpus);
  EXPECT_FALSE(ReadServerLoadResult(Json::MakeObject()));
}

}  // namespace
}  // namespace pinion::harness
