#include "harness/topo/live.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "harness/topo/styled_text.h"

namespace pinion::harness {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kUrl = "http://127.0.0.1:8000";

// Two ranks on a node each; 1 of 4 pages of rank 1's weights is on rank 0's node.
constexpr const char* kInfo = R"({"options": {"model": "org/name"}, "processes": 1, "placement": [
  {"rank": 0, "nodes": [0], "weights": [{"node": 0, "bytes": 16384, "pages": 4}], "kv": [],
   "workspace": [{"node": 0, "bytes": 4096, "pages": 1}],
   "remote_share": {"weights": 0.0, "kv": null, "workspace": 0.0}},
  {"rank": 1, "nodes": [1],
   "weights": [{"node": 0, "bytes": 4096, "pages": 1}, {"node": 1, "bytes": 12288, "pages": 3}],
   "kv": [{"node": 1, "bytes": 8192, "pages": 2}],
   "workspace": [{"node": 1, "bytes": 4096, "pages": 1}],
   "remote_share": {"weights": 0.25, "kv": 0.0, "workspace": 0.0}}]})";

Json Info() { return Json::Parse(kInfo).value(); }

LivePlacement Placed(const Json& info) {
  auto placement = ReadPlacement(info, kUrl);
  EXPECT_TRUE(placement) << (placement ? "" : placement.error().message);
  return placement ? *placement : LivePlacement{};
}

std::string ErrorOfInfo(const Json& info) {
  const auto placement = ReadPlacement(info, kUrl);
  return placement ? "no error" : placement.error().message;
}

// The info with a key of its second rank changed.
Json WithRankKey(const std::string& key, const char* value) {
  Json info = Info();
  Json placement = *info.Find("placement");
  placement.array()[1].Set(key, Json::Parse(value).value());
  info.Set("placement", placement);
  return info;
}

TEST(LivePlacement, DrawsPagesAndRemoteShareOfEachRank) {
  const std::string text = DrawPlacement(Placed(Info()), false);
  EXPECT_EQ(text,
            "org/name at http://127.0.0.1:8000\n"
            "rank 0     planned on node 0\n"
            "           weights: 4 pages (16.0 KiB) on node 0 · 0.0 % remote\n"
            "           KV: not written yet\n"
            "           workspace: 1 page (4.0 KiB) on node 0 · 0.0 % remote\n"
            "rank 1     planned on node 1\n"
            "           weights: 1 page (4.0 KiB) on node 0, 3 pages (12.0 KiB) on node 1 · 25.0 % "
            "remote\n"
            "           KV: 2 pages (8.0 KiB) on node 1 · 0.0 % remote\n"
            "           workspace: 1 page (4.0 KiB) on node 1 · 0.0 % remote\n");
}

TEST(LivePlacement, RendersJson) {
  const Json json = ToJson(Placed(Info()));
  EXPECT_EQ(*json.Find("model"), Json("org/name"));
  const Json& ranks = *json.Find("engines")->array().at(0).Find("ranks");
  EXPECT_EQ(
      ranks.array().at(1).Dump(),
      R"({"rank":1,"nodes":[1],"policy":null,"policy_nodes":[],)"
      R"("weights":{"nodes":[{"node":0,"bytes":4096,"pages":1},)"
      R"({"node":1,"bytes":12288,"pages":3}],"bytes":16384,"remote_share":0.25,"unknown":null},)"
      R"("kv":{"nodes":[{"node":1,"bytes":8192,"pages":2}],"bytes":8192,"remote_share":0.0,)"
      R"("unknown":null},)"
      R"("workspace":{"nodes":[{"node":1,"bytes":4096,"pages":1}],"bytes":4096,)"
      R"("remote_share":0.0,"unknown":null}})");
  EXPECT_TRUE(ranks.array().at(0).Find("kv")->Find("remote_share")->is_null());
}

TEST(LivePlacement, ShowsEveryEngineOfSeveral) {
  Json all = Info(), second = WithRankKey("nodes", "[2, 3]");
  all.Set("replicas", Json(Json::Array{Info(), second}));
  const LivePlacement placement = Placed(all);
  ASSERT_EQ(placement.engines.size(), 2u);
  const std::string text = DrawPlacement(placement, false);
  EXPECT_THAT(text, HasSubstr("engine 0\nrank 0"));
  EXPECT_THAT(text, HasSubstr("engine 1\nrank 0"));
  EXPECT_THAT(text, HasSubstr("planned on nodes 2-3"));
  EXPECT_THAT(DrawPlacement(Placed(Info()), false), Not(HasSubstr("engine 0")));
}

TEST(LivePlacement, NamesTheEngineThatSharesItsWeights) {
  const auto with_copy = [](const char* shared) {
    Json info = Info();
    info.Set("shared_weights", Json::Parse(shared).value());
    return info;
  };
  Json all = Info();
  all.Set("replicas", Json(Json::Array{with_copy("null"), with_copy(R"({"copy": 3})"),
                                       with_copy(R"({"copy": 5})"), with_copy(R"({"copy": 3})")}));
  const LivePlacement placement = Placed(all);
  EXPECT_THAT(placement.weights_of, testing::ElementsAre(0u, 1u, 2u, 1u));
  const std::string text = DrawPlacement(placement, false);
  EXPECT_THAT(text, HasSubstr("engine 2\n"));
  EXPECT_THAT(text, HasSubstr("engine 3 · its weights are those of engine 1\n"));
  EXPECT_EQ(*ToJson(placement).Find("engines")->array().at(3).Find("weights_of"), Json(1));
}

TEST(LivePlacement, ShowsTheMemoryPolicyInForceAndWhyItIsNot) {
  const Json strict = WithRankKey("policy", "\"strict\"");
  EXPECT_THAT(ErrorOfInfo(strict), HasSubstr("policy_nodes"));
  Json info = strict;
  Json placement = *info.Find("placement");
  placement.array()[1].Set("policy_nodes", Json::Parse("[1]").value());
  info.Set("placement", placement);
  EXPECT_THAT(DrawPlacement(Placed(info), false),
              HasSubstr("rank 1     planned on node 1 · memory policy strict on node 1\n"));
  placement.array()[1].Set("policy", "interleave");
  info.Set("placement", placement);
  EXPECT_THAT(DrawPlacement(Placed(info), true), Not(HasSubstr("\x1b[33m"))) << "it was asked for";
  info.Set("memory_policy", Json::Parse(R"({"asked": "strict", "in_force": "local",
      "refusal": "the kernel refuses mbind"})")
                                .value());
  EXPECT_THAT(DrawPlacement(Placed(info), false), HasSubstr("the kernel refuses mbind\n"));
  EXPECT_EQ(*ToJson(Placed(info)).Find("policy_refusal"), Json("the kernel refuses mbind"));
}

TEST(LivePlacement, TellsUnknownNodesFromUnusedMemory) {
  Json info = WithRankKey("unknown", "\"the kernel refuses move_pages\"");
  EXPECT_THAT(DrawPlacement(Placed(info), false),
              HasSubstr("weights: unknown, because the kernel refuses move_pages\n           "
                        "KV: unknown, because"));
}

TEST(LivePlacement, SaysThatOtherProcessesHavePagesToo) {
  Json info = Info();
  info.Set("processes", 3);
  EXPECT_THAT(DrawPlacement(Placed(info), false), HasSubstr("ranks of 2 other processes"));
  EXPECT_THAT(DrawPlacement(Placed(Info()), false), Not(HasSubstr("other process")));
}

TEST(LivePlacement, SharesWithoutAPlanAreUnknown) {
  Json info = WithRankKey("nodes", "[]");
  Json placement = *info.Find("placement");
  placement.array()[1].Set("remote_share", Json::Parse(R"({"weights":null,"kv":null})").value());
  info.Set("placement", placement);
  const std::string text = DrawPlacement(Placed(info), false);
  EXPECT_THAT(text, HasSubstr("no node is planned"));
  EXPECT_THAT(text, HasSubstr("an unknown share remote"));
}

TEST(LivePlacement, WarnsOfALargeShare) {
  const std::string kWarning = "\x1b[33m";
  EXPECT_THAT(DrawPlacement(Placed(Info()), true), HasSubstr(kWarning + " 25.0"));
  Json placement = *Info().Find("placement");
  placement.array()[1].Set("remote_share", Json::Parse(R"({"weights": 0.05})").value());
  Json info = Info();
  info.Set("placement", placement);
  EXPECT_THAT(DrawPlacement(Placed(info), true), Not(HasSubstr(kWarning)));
}

TEST(LivePlacement, FitsATerminal) {
  Json nodes = Json::MakeArray();
  for (int node = 0; node < 8; ++node)
    nodes.Append(Json::Object{{"node", node}, {"bytes", 1 << 30}, {"pages", 1 << 18}});
  const Json info = WithRankKey("weights", nodes.Dump().c_str());
  for (const std::string& line : Split(DrawPlacement(Placed(info), false), '\n'))
    EXPECT_LE(DisplayWidth(line), 100u) << line;
}

TEST(LivePlacement, RefusesAnythingButAPlacement) {
  const std::string way_out = "--live wants a server that this version of pinion started";
  for (const char* other : {"{}", "[]", "3", R"({"placement": 5})", R"({"placement": [7]})"})
    EXPECT_THAT(ErrorOfInfo(Json::Parse(other).value()), HasSubstr(way_out)) << other;
  for (const auto& [key, value] : {std::pair{"weights", "{}"},
                                   {"kv", "[{}]"},
                                   {"kv", R"([{"node": 0, "bytes": -1}])"},
                                   {"nodes", "null"},
                                   {"rank", R"("one")"}})
    EXPECT_THAT(ErrorOfInfo(WithRankKey(key, value)), HasSubstr(way_out)) << key << " " << value;
  Json old =
      Json::Parse(R"({"placement": [{"rank": 0, "nodes": [0], "weights": [], "kv": []}]})").value();
  EXPECT_THAT(ErrorOfInfo(old), HasSubstr("'remote_share' is missing"));
}

}  // namespace
}  // namespace pinion::harness
