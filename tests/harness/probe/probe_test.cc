#include "harness/probe/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "engine/base/strings.h"
#include "engine/host/budget.h"
#include "engine/host/caches.h"
#include "engine/host/team.h"
#include "harness/probe/ceilings.h"
#include "harness/probe/tile_rates.h"
#include "kernels/offered_isas.h"
#include "kernels/probe.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

const ProbeResult& Probed() {
  static const ProbeResult result = [] {
    ProbeOptions options;
    options.seconds = 1;
    options.memory_bytes = 64 << 20;  // touched in no time; the speed does not matter here
    auto probed = RunProbe(options, [](const std::string&) {});
    EXPECT_TRUE(probed) << probed.error().message;
    return std::move(*probed);
  }();
  return result;
}

// Every item has the keys, and what its key's unit says is positive.
void ExpectItems(const Json& json, const char* array, std::initializer_list<const char*> keys,
                 const char* figure) {
  ASSERT_TRUE(json.Find(array) && json.Find(array)->is_array()) << array;
  EXPECT_FALSE(json.Find(array)->array().empty()) << array;
  for (const Json& item : json.Find(array)->array()) {
    for (const char* key : keys) EXPECT_TRUE(item.Find(key)) << array << "." << key;
    ASSERT_TRUE(item.Find(figure) && item.Find(figure)->is_number()) << array << "." << figure;
    EXPECT_GT(item.Find(figure)->number(), 0) << array << "." << figure;
  }
}

TEST(Probe, JsonHoldsItsSchema) {
  const Json json = Json::Parse(ToJson(Probed()).Dump()).value();
  ExpectItems(json, "memory_read", {"threads", "cpus"}, "bytes_per_s");
  ExpectItems(json, "nodes", {"cpu_node", "memory_node", "threads"}, "bytes_per_s");
  ExpectItems(json, "compute", {"isa", "dtype", "threads"}, "flops_per_s");
  ExpectItems(json, "int8", {"isa", "threads"}, "operations_per_s");
  ExpectItems(json, "latencies", {"level", "bytes"}, "ns");
  for (const Json& item : json.Find("gemm")->array())
    for (const char* key : {"isa", "dtype", "rules"})
      EXPECT_FALSE(item.Find(key)->string().empty()) << key;
  EXPECT_EQ(json.Find("gemm")->array().size(), 3u);
  EXPECT_TRUE(json.Find("instructions")->is_array());
  ExpectItems(json, "exp", {"isa", "threads"}, "exps_per_s");
  for (const char* key : {"elapsed_s", "threads"}) EXPECT_GT(json.Find(key)->number(), 0) << key;
  for (const char* key : {"barrier_ns", "fork_join_ns", "wake_ns", "machine", "cpus", "distances"})
    EXPECT_TRUE(json.Find(key)) << key;
  for (const Json& item : json.Find("missing")->array())
    for (const char* key : {"what", "why"}) EXPECT_FALSE(item.Find(key)->string().empty()) << key;
}

TEST(Probe, MeasuresEveryOfferedIsa) {
  std::set<kernels::Isa> compute, exps;
  for (const ComputeRate& rate : Probed().compute) compute.insert(rate.isa);
  for (const ExpRate& rate : Probed().exps) exps.insert(rate.isa);
  const auto& offered = kernels::OfferedIsas().isas;
  EXPECT_EQ(compute, std::set<kernels::Isa>(offered.begin(), offered.end()));
  EXPECT_EQ(exps, compute);
  std::set<kernels::Isa> with_int8, int8;
  for (const kernels::Isa isa : offered)
    if (kernels::Int8Probe(isa)) with_int8.insert(isa);
  for (const Int8Rate& rate : Probed().int8) int8.insert(rate.isa);
  EXPECT_EQ(int8, with_int8);
}

// An instruction is measured on every team, or named as missing.
TEST(Probe, EveryInstructionHasItsLine) {
  const std::string text = Draw(Probed(), false);
  for (const kernels::InstructionProbe& probe : kernels::InstructionProbes()) {
    EXPECT_THAT(text, HasSubstr(probe.name));
    const auto measured =
        std::count_if(Probed().instructions.begin(), Probed().instructions.end(),
                      [&](const InstructionRate& rate) { return rate.name == probe.name; });
    EXPECT_EQ(measured > 0, probe.run != nullptr) << probe.name;
  }
}

TEST(TileRates, TakeOperandsThatFitTheirCacheAndNotTheOneBefore) {
  const std::vector<Cache> caches = {{1, 48 << 10, {0}}, {2, 2 << 20, {0}}, {3, 96 << 20, {0}}};
  EXPECT_EQ(TileOperandBytes(caches, 1), 12u << 10);
  EXPECT_EQ(TileOperandBytes(caches, 2), 512u << 10);
  EXPECT_EQ(TileOperandBytes(caches, 3), 4u << 20);
  EXPECT_EQ(TileOperandBytes({caches[0], caches[1]}, 3), 0u);
  EXPECT_EQ(TileOperandBytes({caches[0], caches[1], {3, 3 << 20, {0}}}, 3), 0u);
  EXPECT_EQ(TileOperandBytes({}, 1), 0u);
}

// On every team, from every known cache, if there are tiles.
TEST(TileRates, HaveTheirLines) {
  if (kernels::TileProbes().empty()) GTEST_SKIP() << "there are no matrix tiles here";
  const std::string text = Draw(Probed(), false);
  for (const kernels::TileProbe& probe : kernels::TileProbes())
    EXPECT_THAT(text, HasSubstr(StrCat(probe.name, " from L1 and L2")));
}

TEST(Probe, LatenciesGoFromTheNearestCacheToMemory) {
  const auto& latencies = Probed().latencies;
  ASSERT_FALSE(latencies.empty());
  EXPECT_EQ(latencies.back().level, 0);
  for (size_t i = 1; i + 1 < latencies.size(); ++i)
    EXPECT_GT(latencies[i].level, latencies[i - 1].level);
}

TEST(Probe, MissingFiguresAreNamed) {
  const std::string text = Draw(Probed(), false);
  for (const MissingFigure& missing : Probed().missing) EXPECT_THAT(text, HasSubstr(missing.what));
  EXPECT_EQ(Probed().barrier_ns.has_value(), Probed().plan.total_threads() > 1);
  EXPECT_EQ(Probed().distances.empty(), Probed().plan.total_threads() == 1);
  for (int i = 0; i < kernels::kIsaCount; ++i) {
    const auto isa = static_cast<kernels::Isa>(i);
    EXPECT_THAT(text, HasSubstr(kernels::Name(isa)));  // measured or missing
  }
}

TEST(Probe, ImpossibleDurationsAreRefused) {
  for (double seconds : {0.0, -1.0, 61.0}) {
    const auto status = Validate({.seconds = seconds});
    ASSERT_FALSE(status) << seconds;
    EXPECT_EQ(status.error().code, ErrorCode::kUsage);
    EXPECT_THAT(status.error().message, HasSubstr("want 1 to 60"));
  }
}

// Twelve L3 domains of 32 MiB in each of two packages.
TEST(Ceilings, AreReadFromMoreMemoryThanTheCachesOfTheirCpusHold) {
  constexpr uint64_t kMiB = 1 << 20, kMuch = uint64_t{1} << 40;
  const Machine machine = *ImagineMachine("pack:2 numa:1 l3:12(size=33554432) core:8 pu:2");
  Plan anywhere, two_domains;
  anywhere.ranks.push_back({0, {}, {}, 4});
  two_domains.ranks.push_back({0, {0, 2}, {0}, 2});
  two_domains.ranks.push_back({1, {4, 20}, {0}, 2});
  EXPECT_EQ(StreamBytes(machine, anywhere, kMuch), 16 * 24 * 32 * kMiB);
  EXPECT_EQ(StreamBytes(machine, two_domains, kMuch), 16 * 2 * 32 * kMiB);
  EXPECT_EQ(StreamBytes(machine, two_domains, 1024 * kMiB), 512 * kMiB);
  EXPECT_EQ(StreamBytes(machine, two_domains, 0), 2 * 2 * 32 * kMiB) << "twice the caches at least";
  const Machine small = *ImagineMachine("pack:1 numa:1 l3:1(size=8388608) core:2 pu:1");
  EXPECT_EQ(StreamBytes(small, anywhere, kMuch), 256 * kMiB);
  EXPECT_EQ(StreamBytes(*ImagineMachine("pack:1 numa:1 core:2 pu:1"), anywhere, kMuch), 1024 * kMiB)
      << "nobody knows its caches";
}

// The short probe of a plan with two ranks' worth of threads, beside another team of this thread.
TEST(Ceilings, AreMeasuredOnThePlansThreads) {
  Plan plan;
  plan.ranks.push_back({0, {}, {}, 1});
  plan.ranks.push_back({1, {}, {}, 1});
  const auto ranks = Ranks::Start(plan);
  ASSERT_TRUE(ranks) << ranks.error().message;
  auto probe = CeilingProbe::Start(plan, kernels::Isa::kScalar, kernels::Dtype::kBf16, true);
  ASSERT_TRUE(probe) << probe.error().message;
  const Ceilings ceilings = (*probe)->Measure();
  EXPECT_GT(ceilings.read_bytes_per_s, 0);
  EXPECT_GT(ceilings.flops_per_s, 0);
  EXPECT_EQ((*probe)->memory_bytes(), StreamBytes(*ThisMachine(), plan, AvailableMemoryBytes()));
  std::atomic<int> ran{0};
  (*ranks)->Run([&](const Worker&) { ++ran; });
  EXPECT_EQ(ran, 2);
}

TEST(Ceilings, AreNotMeasuredIfTheEnvironmentSaysSo) {
  Plan plan;
  plan.ranks.push_back({0, {}, {}, 1});
  const auto start = [&] {
    return CeilingProbe::Start(plan, kernels::Isa::kScalar, kernels::Dtype::kF32, false);
  };
  setenv("PINION_CEILINGS", "0", 1);
  const auto none = start();
  setenv("PINION_CEILINGS", "1", 1);
  const auto some = start();
  unsetenv("PINION_CEILINGS");
  EXPECT_TRUE(some) << some.error().message;
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "the environment variable PINION_CEILINGS is 0");
}

}  // namespace
}  // namespace pinion::harness
