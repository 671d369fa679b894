// Ranks in several processes compute what ranks of one process compute, to the bit: whatever the
// architecture, terms are added in the order of ranks. Threads stand in for processes.

#include <gtest/gtest.h>

#include "tests/engine/comm/thread_world.h"
#include "tests/engine/decoder/loaded.h"

namespace pinion {
namespace {

using testing::Float32;
using testing::kShuffled;
using testing::Loaded;
using testing::ThreadWorld;
using testing::Unpinned;

std::vector<int32_t> SomeIds(size_t count) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(3 + i * 37 % 90));
  return ids;
}

// The leader's logits of a sequence in chunks, `processes` of `ranks` ranks each.
std::vector<float> RunSpread(const ModelFiles& files, size_t processes, size_t ranks,
                             const std::vector<int32_t>& ids, size_t chunk) {
  std::vector<float> logits;
  ThreadWorld(processes).Run([&](Communicator& world) {
    DecoderOptions options = Float32();
    options.communicator = &world;
    Loaded part(files, Unpinned(std::vector<int>(ranks, 1)), options);
    auto own = part.Run(ids, chunk, kShuffled);
    if (world.process() == 0) logits = std::move(own);
  });
  return logits;
}

std::vector<float> RunTogether(const ModelFiles& files, size_t ranks,
                               const std::vector<int32_t>& ids, size_t chunk) {
  Loaded all(files, Unpinned(std::vector<int>(ranks, 1)), Float32());
  return all.Run(ids, chunk, kShuffled);
}

class RankExchangeOf : public ::testing::TestWithParam<std::string> {};

TEST_P(RankExchangeOf, TwoProcessesAreTwoRanks) {
  const ModelFiles files = FindModel(testing::ModelFolder(GetParam())).value();
  const auto ids = SomeIds(40);
  const auto want = RunTogether(files, 2, ids, 9);
  EXPECT_EQ(RunSpread(files, 2, 1, ids, 9), want);
}

INSTANTIATE_TEST_SUITE_P(Models, RankExchangeOf, ::testing::ValuesIn(tests::ModelFixtures()),
                         [](const auto& param) { return tests::TestName(param.param); });

// More ranks than heads of some kind, so that the shares of some are empty, and several ranks in
// each process.
TEST(RankExchange, RanksAreNumberedThroughAllProcesses) {
  const auto ids = SomeIds(30);
  for (const char* model : {"llama", "olmo2", "mixtral", "deepseekv3"}) {
    const ModelFiles files = FindModel(testing::ModelFolder(model)).value();
    EXPECT_EQ(RunSpread(files, 3, 1, ids, 30), RunTogether(files, 3, ids, 30)) << model;
    EXPECT_EQ(RunSpread(files, 2, 2, ids, 11), RunTogether(files, 4, ids, 11)) << model;
    EXPECT_EQ(RunSpread(files, 5, 1, ids, 30), RunTogether(files, 5, ids, 30)) << model;
  }
}

// More rows of logits than are computed at once.
TEST(RankExchange, LogitsComeInChunks) {
  const ModelFiles files = FindModel(testing::ModelFolder("llama")).value();
  const auto ids = SomeIds(kLogitChunk * 2 + 5);
  const auto run = [&](Communicator* world) {
    DecoderOptions options = Float32();
    options.max_rows = ids.size();
    options.communicator = world;
    Loaded part(files, Unpinned(std::vector<int>(world ? 1 : 2, 1)), options);
    return part.Run(ids, ids.size(), kShuffled);
  };
  const auto want = run(nullptr);
  ThreadWorld(2).Run([&](Communicator& world) {
    const auto got = run(&world);
    if (world.process() == 0) {
      EXPECT_EQ(got, want);
    }
  });
}

}  // namespace
}  // namespace pinion
