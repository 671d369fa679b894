#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/base/strings.h"
#include "harness/topo/draw.h"
#include "harness/topo/examine.h"
#include "harness/topo/styled_text.h"
#include "kernels/offered_isas.h"

namespace pinion::harness {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Topology MustExamine(const TopologyOptions& options) {
  auto topology = Examine(options);
  EXPECT_TRUE(topology) << (topology ? "" : topology.error().message);
  return topology ? *topology : Topology{};
}

TopologyOptions TwoSockets() {
  TopologyOptions options;
  options.machine = "pack:2 numa:1(memory=64GiB) l3:2(size=33554432) core:3 pu:2";
  options.engine.tensor_parallel = 2;
  options.engine.reserved_cpus = 1;
  options.allowed_cpus = "0-9,12-23";
  return options;
}

TEST(Topology, RendersJson) {
  const Json json = ToJson(MustExamine(TwoSockets()));
  EXPECT_EQ(json.Find("budget")->Find("cpus")->array().size(), 22u);
  EXPECT_TRUE(json.Find("budget")->Find("cpu_quota")->is_null());
  EXPECT_EQ(json.Find("nodes")->array()[1].Dump(),
            R"({"id":1,"cpus":[12,13,14,15,16,17,18,19,20,21,22,23],"memory_bytes":68719476736})");
  EXPECT_THAT(json.Find("isa")->array(), Contains(Json("scalar")));
  EXPECT_EQ(json.Find("isa")->array().size(), kernels::OfferedIsas().isas.size());
  const Json& plan = *json.Find("plan");
  EXPECT_EQ(plan.Find("ranks")->array()[0].Find("cpus")->Dump(), "[0,2,4,6,8]");
  EXPECT_EQ(plan.Find("ranks")->array()[1].Find("cpus")->Dump(), "[12,14,16,18,20]");
  EXPECT_EQ(plan.Find("ranks")->array()[1].Find("nodes")->Dump(), "[1]");
  EXPECT_EQ(plan.Find("frontend_cpus")->Dump(), "[22]");
  EXPECT_TRUE(plan.Find("warnings")->is_array());
}

// Replicas x stages x tensor-parallel ranks, in one table.
TEST(Topology, PlacesTheRanksOfStagesOfSeveralEngines) {
  TopologyOptions options;
  options.machine = "pack:2 numa:2 core:8 pu:1";
  options.engine.tensor_parallel = 2;
  options.engine.pipeline_parallel = 2;
  options.replicas = 2;
  const Topology topology = MustExamine(options);
  const std::string picture = DrawTopology(topology, false);
  EXPECT_THAT(picture, HasSubstr("rank 0     engine 0 · stage 2 of 2 · 4 threads · node 0 · cpu "));
  EXPECT_THAT(picture, HasSubstr("rank 2     engine 0 · stage 1 of 2 · 4 threads · node 1 · cpu "));
  EXPECT_THAT(picture, HasSubstr("rank 5     engine 1 · stage 2 of 2 · 4 threads · node 2 · cpu "));
  const Json json = ToJson(topology);
  const Json::Array& placement = json.Find("placement")->array();
  ASSERT_EQ(placement.size(), 8u);
  EXPECT_EQ(placement[7].Dump(), R"({"engine":1,"rank":3,"stage":0,"threads":4,"nodes":[3],)"
                                 R"("cpus":[28,29,30,31]})");
  options.replicas = options.engine.pipeline_parallel = 1;
  EXPECT_THAT(DrawTopology(MustExamine(options), false), Not(HasSubstr("engine 0 ·")));
}

TEST(Topology, EnginesThatDoNotFitAreRefusedWithANumberThatFits) {
  TopologyOptions options;
  options.machine = "pack:1 numa:1 core:8 pu:1";
  options.engine.pipeline_parallel = 2;
  options.replicas = 5;
  EXPECT_THAT(Examine(options).error().message, HasSubstr("use --data-parallel-size 4 or less"));
  options.replicas = 4;
  EXPECT_TRUE(Examine(options));
}

TEST(Topology, SaysWhyAmxIsLeftUnused) {
  Topology topology = MustExamine(TwoSockets());
  topology.amx_refusal.clear();
  EXPECT_TRUE(ToJson(topology).Find("amx_refusal")->is_null());
  EXPECT_THAT(DrawTopology(topology, false), Not(HasSubstr("AMX")));
  topology.amx_refusal = "its self-check failed";
  EXPECT_EQ(*ToJson(topology).Find("amx_refusal"), Json("its self-check failed"));
  EXPECT_THAT(DrawTopology(topology, false),
              HasSubstr("AMX is left unused: its self-check failed"));
}

TEST(Topology, DrawsRanksOnTheirCpus) {
  const std::string picture = DrawTopology(MustExamine(TwoSockets()), false);
  EXPECT_THAT(picture, HasSubstr("2 sockets · 2 NUMA nodes · 12 cores · 24 logical CPUs"));
  EXPECT_THAT(picture, HasSubstr("node 0 · 64.0 GiB · 2 × L3 32.0 MiB · 6 cores"));
  EXPECT_THAT(picture, HasSubstr("0· 0· 0· │ 0· 0· ××   cpu 0-11"));
  EXPECT_THAT(picture, HasSubstr("1· 1· 1· │ 1· 1· F·   cpu 12-23"));
  EXPECT_THAT(picture, HasSubstr("front end  cpu 22"));
  EXPECT_THAT(picture, Not(HasSubstr("\x1b"))) << "escapes without colour";
}

TEST(Topology, FitsATerminalAndItsBoxesAreStraight) {
  for (const char* machine :
       {"pack:2 numa:1 l3:8 core:8 pu:2", "pack:2 numa:4 l3:1 core:14 pu:1", "numa:1 core:1 pu:1",
        "pack:1 numa:1 core:60 pu:4", "pack:8 numa:1 core:28 pu:2"}) {
    TopologyOptions options;
    options.machine = machine;
    size_t box_width = 0;
    for (const std::string& line : Split(DrawTopology(MustExamine(options), false), '\n')) {
      EXPECT_LE(DisplayWidth(line), 100u) << line;
      if (line.rfind("│", 0) != 0 && line.rfind("╭", 0) != 0) continue;
      if (box_width == 0) box_width = DisplayWidth(line);
      EXPECT_EQ(DisplayWidth(line), box_width) << line;
    }
    EXPECT_GT(box_width, 0u);
  }
}

TEST(Topology, ColoursDoNotChangeTheText) {
  const Topology topology = MustExamine(TwoSockets());
  std::string coloured = DrawTopology(topology, true);
  EXPECT_THAT(coloured, HasSubstr("\x1b["));
  for (size_t at; (at = coloured.find('\x1b')) != std::string::npos;)
    coloured.erase(at, coloured.find('m', at) - at + 1);
  EXPECT_EQ(coloured, DrawTopology(topology, false));
}

TEST(Topology, MarksFloatingThreads) {
  TopologyOptions options;
  options.machine = "numa:1 core:2 pu:1";
  options.engine.threads_bind = "nobind";
  const std::string picture = DrawTopology(MustExamine(options), false);
  EXPECT_THAT(picture, HasSubstr("* *"));
  EXPECT_THAT(picture, HasSubstr("unpinned"));
}

TEST(Topology, TakesOmpNumThreadsUnderNobind) {
  TopologyOptions options;
  options.machine = "numa:1 core:8 pu:1";
  options.engine.threads_bind = "nobind";
  setenv("OMP_NUM_THREADS", "3,1", 1);
  const Topology topology = MustExamine(options);
  setenv("OMP_NUM_THREADS", "many", 1);
  const auto bad = Examine(options);
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(topology.plan.total_threads(), 3);
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("OMP_NUM_THREADS 'many'"));
}

TEST(Topology, NamesTheFlagThatIsWrong) {
  TopologyOptions options;
  options.allowed_cpus = "0-x";
  EXPECT_THAT(Examine(options).error().message, HasSubstr("--allowed-cpus"));
  options = {};
  options.machine = "a toaster";
  EXPECT_THAT(Examine(options).error().message, HasSubstr("'a toaster'"));
}

TEST(StyledText, CountsColumnsNotBytes) {
  StyledText line(true);
  line.Add("╭─×", Style::kDim).Add("é").Pad(6);
  EXPECT_EQ(line.width(), 6u);
  EXPECT_EQ(line.text(), "\x1b[2m╭─×\x1b[0mé  ");
}

}  // namespace
}  // namespace pinion::harness
