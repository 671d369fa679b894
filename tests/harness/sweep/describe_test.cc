#include <gtest/gtest.h>

#include "harness/sweep/sweep.h"

namespace pinion::harness {
namespace {

Json FactsOn(const std::string& model) {
  EngineOptions options;
  options.model = model;
  const auto meta = DescribeSweep(Definition(), options, Host::This().value(), "");
  EXPECT_TRUE(meta) << (meta ? "" : meta.error().message);
  return meta->model_facts;
}

double At(const Json& facts, const char* key) { return facts.Find(key)->number(); }

// Published: 30.5B parameters, of which a token uses 3.3B, and 32k tokens.
TEST(DescribeSweep, CountsTheExpertsThatATokenChooses) {
  const Json facts = FactsOn("preset:qwen3-30b-a3b");
  EXPECT_NEAR(At(facts, "parameters") / 1e9, 30.5, 0.05);
  EXPECT_NEAR(At(facts, "active_parameters") / 1e9, 3.35, 0.05);
  EXPECT_EQ(At(facts, "context_length"), 40960);
}

TEST(DescribeSweep, ADenseModelUsesAllParameters) {
  const Json facts = FactsOn("preset:llama-3.2-1b");
  EXPECT_NEAR(At(facts, "parameters") / 1e9, 1.24, 0.01);
  EXPECT_EQ(At(facts, "active_parameters"), At(facts, "parameters"));
}

}  // namespace
}  // namespace pinion::harness
