#include "harness/sweep/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace pinion::harness {
namespace {

using testing::HasSubstr;

SweepMeta Measured() {
  SweepMeta meta;
  meta.model = meta.base.model = "preset:tiny";
  meta.machine = *Json::Parse(R"({"cpu_model":"a CPU","cores":2})");
  meta.budget = *Json::Parse(R"({"cpus":[0,1],"cpu_quota":1.5})");
  meta.provenance = *Json::Parse(R"({
    "engine":{"version":"1","binary_hash":"11"},"model":{"name":"m","hash":"22"},
    "engines":{"vllm":{"program":"33"}},"environment":{"OMP_WAIT_POLICY":"active"},
    "kernel":{"release":"6.1"}})");
  return meta;
}

struct Circumstance {
  const char* says;
  std::function<void(SweepMeta&)> change;
};

Json ProvenanceWith(const char* key, const char* value) {
  Json provenance = Measured().provenance;
  provenance.Set(key, *Json::Parse(value));
  return provenance;
}

// Trials under other circumstances measure something else.
TEST(CheckSame, NamesEveryCircumstanceThatHasChanged) {
  ASSERT_TRUE(CheckSame(Measured(), Measured()));
  const std::vector<Circumstance> circumstances = {
      {"another model: \"preset:tiny\" there, \"other\" here",
       [](SweepMeta& meta) { meta.model = "other"; }},
      {"configuration (max_num_seqs)", [](SweepMeta& meta) { meta.base.max_num_seqs = 3; }},
      {"definition (seed)", [](SweepMeta& meta) { meta.definition.seed = 9; }},
      {"machine (cores)", [](SweepMeta& meta) { meta.machine.Set("cores", 4); }},
      {"set of CPUs: [0,1] then, [0] now",
       [](SweepMeta& meta) { meta.budget.Set("cpus", Json(std::vector<int>{0})); }},
      {"CPU quota: 1.5 then, null now",
       [](SweepMeta& meta) { meta.budget.Set("cpu_quota", Json()); }},
      {"pinion (hash of the binary): \"11\" then, \"12\" now",
       [](SweepMeta& meta) {
         meta.provenance = ProvenanceWith("engine", R"({"binary_hash":"12"})");
       }},
      {"model (hash of its files): \"22\" then, \"23\" now",
       [](SweepMeta& meta) { meta.provenance = ProvenanceWith("model", R"({"hash":"23"})"); }},
      {"file of an engine (hashes)",
       [](SweepMeta& meta) {
         meta.provenance = ProvenanceWith("engines", R"({"vllm":{"program":"34"}})");
       }},
      {"environment: {\"OMP_WAIT_POLICY\":\"active\"} then, {} now",
       [](SweepMeta& meta) { meta.provenance = ProvenanceWith("environment", "{}"); }}};
  for (const Circumstance& circumstance : circumstances) {
    SweepMeta now = Measured();
    circumstance.change(now);
    const Status same = CheckSame(Measured(), now);
    ASSERT_FALSE(same) << circumstance.says;
    EXPECT_EQ(same.error().code, ErrorCode::kUsage);
    EXPECT_THAT(same.error().message, HasSubstr(circumstance.says));
  }
}

TEST(CheckSame, MoreBudgetMoreRoundsAndAnotherKernelGoOn) {
  SweepMeta now = Measured();
  now.definition.budget_s *= 2;
  now.definition.rounds += 5;
  now.provenance = ProvenanceWith("kernel", R"({"release":"6.2"})");
  EXPECT_TRUE(CheckSame(Measured(), now));
}

}  // namespace
}  // namespace pinion::harness
