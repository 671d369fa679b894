#include "engine/exec/cpu/cpu_executor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/checkpoint/model.h"
#include "engine/spec/kv_tables.h"

namespace pinion {
namespace {

constexpr size_t kBlocks = 16, kBlockTokens = 16;

std::unique_ptr<CpuExecutor> Tiny(const std::vector<int>& threads, int stages = 1) {
  const ModelFiles files = FindModel("preset:tiny").value();
  Plan plan;
  for (size_t rank = 0; rank < threads.size(); ++rank)
    plan.ranks.push_back({static_cast<int>(rank), {}, {}, threads[rank]});
  DecoderOptions options;
  options.formats = kernels::Dtype::kF32;
  options.max_rows = 64;
  options.block_tokens = kBlockTokens;
  auto executor = CpuExecutor::Load({files.spec,
                                     OpenWeights(files).value(),
                                     plan,
                                     options,
                                     {static_cast<int>(threads.size()) / stages, stages}});
  return std::move(executor).value();
}

StepInput Prompt(RowUse use) {
  StepInput input;
  for (int32_t i = 0; i < 20; ++i) input.tokens.push_back(3 + i * 7);
  input.slices = {{0, 20, 0, {{4, 9}}}};
  input.wanted = {{19, use, 1}};
  return input;
}

StepOutput Compute(CpuExecutor& executor, const StepInput& input, StepCaller& caller) {
  executor.Begin(input);
  return executor.Finish(caller);
}

struct LastRow final : StepCaller {
  std::span<const uint32_t> Mask(size_t) override { return {}; }
  void Take(size_t, const float* row, size_t width) override { values.assign(row, row + width); }
  std::vector<float> values;
};

TEST(CpuExecutor, ChoosesTheTokenOfTheRowThatItHandsOn) {
  const auto executor = Tiny({2});
  ASSERT_TRUE(executor->AllocateKv({kBlocks, 128, 1}));
  LastRow last;
  const StepOutput shown = Compute(*executor, Prompt(RowUse::kItself), last);
  ASSERT_FALSE(last.values.empty());
  StepInput input = Prompt(RowUse::kToken);
  input.begun = {{1, {}, 0, {}, {}}};
  const StepOutput chosen = Compute(*executor, input, last);
  const auto best = std::max_element(last.values.begin(), last.values.end());
  EXPECT_EQ(chosen.tokens.at(0).id, best - last.values.begin());
  // The next token sees what the cache holds.
  StepInput next;
  next.tokens = {5};
  next.slices = {{0, 1, 20, {{4, 9}}}};
  next.wanted = {{0, RowUse::kItself}};
  Compute(*executor, next, last);
  const std::vector<float> in_place = last.values;
  next.slices[0].block_tables = {{7, 8}};  // of nobody
  Compute(*executor, next, last);
  EXPECT_NE(in_place, last.values);
}

// The sequence that ends in the second step chooses a token in the first.
TEST(CpuExecutor, SamplersBeginAndEndInTheOrderOfSteps) {
  const auto executor = Tiny({1, 1}, 2);
  ASSERT_EQ(executor->steps_in_flight(), 2u);
  ASSERT_TRUE(executor->AllocateKv({kBlocks, 128, 1}));
  StepInput first = Prompt(RowUse::kToken), second = Prompt(RowUse::kToken);
  first.begun = {{1, {}, 0, {}, {}}};
  second.ended = {1};
  second.begun = {{1, {}, 0, {}, {}}};
  second.slices[0].block_tables = {{2, 3}};
  NoCaller nobody;
  executor->Begin(first);
  executor->Begin(second);
  const int32_t token = executor->Finish(nobody).tokens.at(0).id;
  EXPECT_GE(token, 0);
  EXPECT_EQ(executor->Finish(nobody).tokens.at(0).id, token);
}

TEST(CpuExecutor, RowsAreHandedOnWhenTheirStepIsFinishedAndNotBefore) {
  const auto executor = Tiny({1, 1}, 2);
  ASSERT_TRUE(executor->AllocateKv({kBlocks, 128, 1}));
  const StepInput first = Prompt(RowUse::kItself), second = first;
  LastRow of_first, of_second;
  executor->Begin(first);
  executor->Begin(second);
  executor->Finish(of_first);
  EXPECT_FALSE(of_first.values.empty());
  executor->Finish(of_second);
  EXPECT_EQ(of_second.values, of_first.values);
  EXPECT_EQ(executor->waited_s().size(), 2u);
}

TEST(CpuExecutor, TellsTheMemoryOfItsRanksAndHowLongTheyWaited) {
  const auto one = Tiny({1}), two = Tiny({1, 1});
  ASSERT_TRUE(one->AllocateKv({kBlocks, 128, 1}));
  ASSERT_TRUE(two->AllocateKv({kBlocks, 128, 1}));
  EXPECT_EQ(one->memory().kv_bytes, two->memory().kv_bytes);
  EXPECT_EQ(one->memory().state_bytes, 0u);
  EXPECT_GT(two->memory().weight_bytes, one->memory().weight_bytes / 2);
  EXPECT_EQ(one->waited_s().size(), 1u);
  EXPECT_EQ(two->waited_s().size(), 2u);
  EXPECT_EQ(two->placements().size(), 2u);
}

// Of a model with 16 blocks, a burst of sequences is all of them.
TEST(CpuExecutor, MakesMemoryReadyOnlyForABurstThatIsExpected) {
  const auto batch = Tiny({1});
  EXPECT_FALSE(batch->AheadOfUse(0, false)) << "no cache yet";
  ASSERT_TRUE(batch->AllocateKv({kBlocks, 128, 1, /*burst=*/0}));
  EXPECT_FALSE(batch->AheadOfUse(0, false));
  const auto server = Tiny({1});
  ASSERT_TRUE(server->AllocateKv({kBlocks, 128, 1, /*burst=*/8}));
  int pieces = 0;
  for (; server->AheadOfUse(0, false) && pieces < 1000; ++pieces) server->PrepareKv(0, false);
  EXPECT_GT(pieces, 0);
  EXPECT_LT(pieces, 1000);
}

}  // namespace
}  // namespace pinion
