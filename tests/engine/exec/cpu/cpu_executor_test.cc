#include "engine/exec/cpu/cpu_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

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

// Reads from blocks 4 and 9 whatever is new.
struct LayerReader final : StepCaller {
  explicit LayerReader(CpuExecutor& executor) : executor(executor) {}
  std::span<const uint32_t> Mask(size_t) override { return {}; }
  void Take(size_t, const float*, size_t) override {}
  void Written(std::span<const size_t> image_bytes) override {
    ASSERT_EQ(image_bytes.size(), 1u);
    ASSERT_GT(image_bytes[0], bytes);
    EXPECT_EQ(caller, std::this_thread::get_id());
    const ImagePart part{0, bytes, image_bytes[0] - bytes};
    std::vector<std::byte> both(2 * part.bytes);
    executor.ReadBlocks(kTwo, part, both.data());
    const auto half = both.begin() + static_cast<ptrdiff_t>(part.bytes);
    images[0].insert(images[0].end(), both.begin(), half);
    images[1].insert(images[1].end(), half, both.end());
    bytes = image_bytes[0];
    ++calls;
  }
  static size_t ImageOf(const CpuExecutor& executor) { return executor.image_bytes().blocks.at(0); }

  static constexpr int32_t kTwo[] = {4, 9};
  CpuExecutor& executor;
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<std::byte> images[2];
  size_t bytes = 0, calls = 0;
};

struct Split {
  std::vector<int> threads;  // of each rank
  int stages;
};

TEST(CpuExecutor, LayersAreReadAsTheStepLeavesThemWhileItGoesOn) {
  for (const auto& [threads, stages] :
       {Split{{1}, 1}, Split{{2}, 1}, Split{{1, 1}, 1}, Split{{1, 1}, 2}, Split{{1, 1, 1, 1}, 2}}) {
    const auto executor = Tiny(threads, stages);
    ASSERT_TRUE(executor->AllocateKv({kBlocks, 128, 1}));
    StepInput input = Prompt(RowUse::kItself);
    input.parts = 2;  // of stages
    input.hands_over = true;
    LayerReader reader(*executor);
    Compute(*executor, input, reader);
    if (stages == 1) {
      EXPECT_EQ(reader.calls, 2u) << "as many as layers";
    }
    const size_t bytes = LayerReader::ImageOf(*executor);
    ASSERT_EQ(reader.bytes, bytes);
    std::vector<std::byte> after(2 * bytes), said = reader.images[0];
    executor->ReadBlocks(LayerReader::kTwo, {0, 0, bytes}, after.data());
    said.insert(said.end(), reader.images[1].begin(), reader.images[1].end());
    EXPECT_EQ(said, after) << threads.size() << " ranks, " << stages << " stages";
    // Block 9 has 4 tokens.
    EXPECT_NE(reader.images[0], reader.images[1]);
  }
}

TEST(CpuExecutor, OnlyAStepThatHandsOverTellsOfItsLayers) {
  const auto executor = Tiny({1});
  ASSERT_TRUE(executor->AllocateKv({kBlocks, 128, 1}));
  LayerReader reader(*executor);
  StepInput input = Prompt(RowUse::kToken);
  input.begun = {{1, {}, 0, {}, {}}};
  Compute(*executor, input, reader);
  EXPECT_EQ(reader.calls, 0u);
}

// Wherever the pieces begin and end.
TEST(CpuExecutor, BlocksWrittenInPiecesAreReadUnchanged) {
  for (const auto& [threads, stages] : {Split{{1}, 1}, Split{{1, 1}, 1}, Split{{1, 1, 1, 1}, 2}}) {
    const auto executor = Tiny(threads, stages);
    ASSERT_TRUE(executor->AllocateKv({kBlocks, 128, 1}));
    const size_t bytes = LayerReader::ImageOf(*executor);
    std::vector<std::byte> image(bytes), read(bytes);
    for (size_t i = 0; i < bytes; ++i) image[i] = static_cast<std::byte>(i * i / 7 + i);
    const int32_t block[] = {5};
    for (size_t at = 0, count = 1; at < bytes;
         at += count, count = std::min(3 * count + 1, bytes - at))
      executor->WriteBlocks(block, {0, at, count}, image.data() + at);
    for (size_t at = 0, count = 5; at < bytes; at += count, count = std::min(2 * count, bytes - at))
      executor->ReadBlocks(block, {0, at, count}, read.data() + at);
    EXPECT_EQ(read, image) << threads.size() << " ranks, " << stages << " stages";
  }
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
