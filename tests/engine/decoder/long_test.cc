// Sequences of 4,000 tokens against the reference: tests/data/long/compute.py.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/isa.h"
#include "tests/engine/decoder/loaded.h"

namespace pinion {
namespace {

using testing::GoldenPrompt;

class LongSequence : public ::testing::TestWithParam<const char*> {};

// The distance from the reference if ranks of so many threads compute a sequence in chunks, and its
// last two tokens one by one, as one that is being answered.
double ErrorOf(const std::string& name, const std::vector<int>& threads) {
  constexpr size_t kChunk = 500, kSingle = 2, kMaxLen = 4096;
  const GoldenPrompt golden =
      testing::ReadGolden(tests::TestData() + "/long/" + name + ".golden").at(0);
  DecoderOptions options = testing::Float32();
  options.isa = kernels::UsableIsas().back();
  options.max_rows = kChunk;
  const ModelFiles files = FindModel(testing::ModelFolder(name)).value();
  testing::Loaded model(files, OpenWeights(files).value(),
                        *Ranks::Start(testing::Unpinned(threads)), options, kMaxLen);
  std::vector<int32_t> table(kMaxLen / options.block_tokens);
  std::iota(table.rbegin(), table.rend(), 0);  // from the last block to the first
  const size_t prompt = golden.input_ids.size() - kSingle;
  std::vector<float> logits;
  const auto step = [&](size_t first, size_t rows) {
    const auto of_step = model.Step(golden.input_ids, first, rows, table);
    logits.insert(logits.end(), of_step.begin(), of_step.end());
  };
  for (size_t at = 0; at < prompt; at += kChunk) step(at, std::min(kChunk, prompt - at));
  for (size_t at = prompt; at < golden.input_ids.size(); ++at) step(at, 1);
  return testing::WorstError(golden, logits);
}

// Positions taken modulo 512, 1,024 or 2,048 would move the logits by 5 to 120 % of their RMS.
TEST_P(LongSequence, PositionsCountToItsEnd) { EXPECT_LT(ErrorOf(GetParam(), {1}), 3e-4); }

// Its layers are of two kinds, so that the threads of a rank plan a chunk together.
TEST(LargeSteps, ArePlannedByThreadsTogether) { EXPECT_LT(ErrorOf("gemma3", {3}), 3e-4); }

INSTANTIATE_TEST_SUITE_P(Models, LongSequence, ::testing::Values("tiny-trained", "llama", "gemma3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace pinion
