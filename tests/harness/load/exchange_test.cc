#include "harness/load/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pinion::harness {
namespace {

using ::testing::HasSubstr;

LoadPlan SmallPlan() {
  LoadPlan plan;
  plan.shape = {
      "code",          {Lengths::Kind::kLogNormal, 1'048'575, 0.7}, Lengths::Fixed(6), 9, 2, 3,
      TextStyle::kCode};
  plan.num_prompts = 5;
  plan.seed = 0xfedcba9876543211;  // more than a real number keeps
  plan.dataset = "one \"quoted\" line\n";
  plan.trace = "trace";
  plan.answers = Lengths{Lengths::Kind::kUniform, 3, 4};
  plan.arrivals = {0.25, HUGE_VAL, Ramp{true, 1, 2}};
  plan.concurrency = 7;
  plan.stop_sending_s = 1.5;
  plan.last_deadline_s = 3;
  return plan;
}

LoadedServer SmallServer() {
  return {ServerUrl::OfPort(8001),
          {},
          {Endpoint::kChat, "m", false, 0.5, Json(Json::Object{{"top_k", 3}})},
          9,
          {1.25, 7, true},
          512};
}

TEST(Exchange, APlanComesBackAsItWas) {
  const LoadPlan sent = SmallPlan();
  const auto read = ReadLoadPlan(*Json::Parse(ToJson(sent).Dump()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, sent);
}

TEST(Exchange, AServerComesBackAsItWas) {
  const LoadedServer sent = SmallServer();
  const auto read = ReadLoadedServer(*Json::Parse(ToJson(sent).Dump()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->url.text, sent.url.text);
  EXPECT_TRUE(read->url.is_local);
  EXPECT_EQ(read->style, sent.style);
  EXPECT_EQ(read->timeout_s, sent.timeout_s);
  EXPECT_EQ(read->scale, sent.scale);
  EXPECT_EQ(read->longest, sent.longest);
}

TEST(Exchange, AClosedLoopHasNoArrivals) {
  LoadPlan plan = SmallPlan();
  plan.trace.clear();
  plan.arrivals = {};
  plan.last_deadline_s.reset();
  const auto read = ReadLoadPlan(*Json::Parse(ToJson(plan).Dump()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_FALSE(read->open_loop());
  EXPECT_FALSE(read->last_deadline_s);
}

TEST(Exchange, APlanOrAServerWithoutAPartIsRefusedByName) {
  const auto without = [](Json json, const std::string& key) {
    EXPECT_EQ(std::erase_if(json.object(), [&](const auto& field) { return field.first == key; }),
              1u);
    return json;
  };
  for (const char* key : {"shape", "num_prompts", "seed", "arrivals", "concurrency"}) {
    const auto read = ReadLoadPlan(without(ToJson(SmallPlan()), key));
    ASSERT_FALSE(read) << key;
    EXPECT_THAT(read.error().message, HasSubstr(key));
  }
  for (const char* key : {"url", "style", "longest"}) {
    const auto read = ReadLoadedServer(without(ToJson(SmallServer()), key));
    ASSERT_FALSE(read) << key;
    EXPECT_THAT(read.error().message, HasSubstr(key));
  }
  Json plan = ToJson(SmallPlan());
  plan.Set("arrivals", Json::Object{{"rate", "fast"}});
  EXPECT_THAT(ReadLoadPlan(plan).error().message, HasSubstr("'arrivals.rate'"));
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
  EXPECT_EQ(read->generator, result.generator);
  EXPECT_FALSE(ReadServerLoadResult(Json::MakeObject()));
}

}  // namespace
}  // namespace pinion::harness
