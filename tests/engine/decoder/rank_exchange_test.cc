// Ranks in several processes compute what ranks of one process compute, to the bit: whatever the
// architecture, terms are added in the order of ranks. Threads stand in for processes.

#include "engine/decoder/rank_exchange.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/strings.h"
#include "engine/comm/traffic.h"
#include "engine/host/machine.h"
#include "engine/spec/stage.h"
#include "tests/engine/comm/thread_world.h"
#include "tests/engine/decoder/loaded.h"
#include "tests/engine/host/bound.h"

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
                             const std::vector<int32_t>& ids, size_t chunk,
                             kernels::Dtype wire = kernels::Dtype::kF32) {
  std::vector<float> logits;
  ThreadWorld(processes).Run([&](Communicator& world) {
    DecoderOptions options = Float32();
    options.communicator = &world;
    options.wire = wire;
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

// Three quarters of everything to the first of two ranks, as far as whole heads and blocks allow;
// everything to the first, or to the second, so that the other has nothing to compute.
const std::vector<uint32_t> kUnequal[] = {{3, 1}, {1000, 1}, {1, 1000}};

class RankExchangeOf : public ::testing::TestWithParam<std::string> {};

TEST_P(RankExchangeOf, TwoProcessesAreTwoRanks) {
  const ModelFiles files = FindModel(testing::ModelFolder(GetParam())).value();
  const auto ids = SomeIds(40);
  const auto want = RunTogether(files, 2, ids, 9);
  EXPECT_EQ(RunSpread(files, 2, 1, ids, 9), want);
}

TEST_P(RankExchangeOf, UnequalSharesComputeTheReferencesLogits) {
  const ModelFiles files = FindModel(testing::ModelFolder(GetParam())).value();
  const testing::GoldenPrompt golden = testing::LoadGolden(GetParam()).front();
  for (const std::vector<uint32_t>& parts : kUnequal) {
    SCOPED_TRACE(StrCat("parts ", parts[0], " and ", parts[1]));
    DecoderOptions options = Float32();
    options.shares = RankShares(parts);
    Loaded together(files, Unpinned({1, 1}), options);
    const auto want = together.Run(golden.input_ids, 9, kShuffled);
    EXPECT_LT(testing::WorstError(golden, want), 3e-4);
    std::vector<float> spread;
    ThreadWorld(2).Run([&](Communicator& world) {
      DecoderOptions own = options;
      own.communicator = &world;
      Loaded part(files, Unpinned({1}), own);
      auto logits = part.Run(golden.input_ids, 9, kShuffled);
      if (world.process() == 0) spread = std::move(logits);
    });
    EXPECT_EQ(spread, want) << "two processes are two ranks";
  }
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

// The residual stream of every process behind the last but one layer.
std::vector<std::vector<float>> ResidualsOf(const ModelFiles& files, size_t processes, size_t ranks,
                                            const std::vector<int32_t>& ids) {
  ModelFiles headless = files;
  headless.spec = StageOf(files.spec, 0, files.spec.layers - 1);
  const size_t floats = ids.size() * HandoverFloats(files.spec);
  std::vector<std::vector<float>> all(processes, std::vector<float>(floats));
  ThreadWorld(processes).Run([&](Communicator& world) {
    DecoderOptions options = Float32();
    options.communicator = &world;
    options.wire = kernels::Dtype::kBf16;
    Loaded part(headless, Unpinned(std::vector<int>(ranks, 1)), options);
    const auto tables = part.Tables(kShuffled, 0);
    StepBatch batch;
    batch.tokens = ids;
    batch.slices = {{0, ids.size(), 0}};
    for (size_t i = 0; i < tables.size(); ++i) batch.slices[0].block_tables[i] = tables[i].data();
    part.decoder->PlanStage(batch, {&batch, 1});
    part.decoder->ForwardStage(batch, {nullptr, all[world.process()].data()}, {});
  });
  return all;
}

// A process rounds its own ranks' terms as well: else each would add other numbers.
TEST(RankExchange, RoundedTermsAreTheSameNumbersInAllProcesses) {
  const auto ids = SomeIds(30);
  for (const char* model : {"llama", "gemma4-moe", "mixtral", "gemma3n"}) {
    const ModelFiles files = FindModel(testing::ModelFolder(model)).value();
    const auto two = ResidualsOf(files, 2, 2, ids), four = ResidualsOf(files, 4, 1, ids);
    EXPECT_EQ(two[1], two[0]) << model;
    for (const auto& residual : four)
      EXPECT_EQ(residual, two[0]) << model << ": however ranks are spread";
  }
}

// The distance of logits that rounded terms lead to, as a root mean square.
double ErrorOfRounding(const ModelFiles& files, const std::vector<int32_t>& ids) {
  const auto exact = RunSpread(files, 2, 1, ids, ids.size());
  const auto rounded = RunSpread(files, 2, 1, ids, ids.size(), kernels::Dtype::kBf16);
  double squares = 0;
  for (size_t i = 0; i < exact.size(); ++i)
    squares += (double{rounded[i]} - exact[i]) * (double{rounded[i]} - exact[i]);
  return std::sqrt(squares / static_cast<double>(exact.size()));
}

// A model in bfloat16 rounds what all products read, and this two terms of a layer alone. (In a
// mixture either may flip an expert, which moves logits by more than all roundings.)
TEST(RankExchange, RoundedTermsMoveLogitsByLessThanHalfOfABfloat16ModelsError) {
  for (const std::string& model : tests::ModelFixtures()) {
    const ModelFiles files = FindModel(testing::ModelFolder(model)).value();
    if (files.spec.moe.router.experts > 0) continue;
    for (const testing::GoldenPrompt& golden : testing::LoadGolden(model)) {
      if (golden.input_ids.size() > Float32().max_rows) continue;
      const double error = ErrorOfRounding(files, golden.input_ids);
      EXPECT_GT(error, 0) << model;
      EXPECT_LT(error, golden.bf16_rms_error / 2) << model << ", RMS " << golden.logit_rms;
    }
  }
}

TEST(RankExchange, RoundedTermsTakeHalfOfTheBytes) {
  const ModelFiles files = FindModel(testing::ModelFolder("llama")).value();
  const auto ids = SomeIds(24);
  const auto sent = [&](kernels::Dtype wire, size_t ranks) {
    Traffic traffic;
    ThreadWorld(2).Run([&](Communicator& world) {
      CountingCommunicator counted(world);
      DecoderOptions options = Float32();
      options.communicator = &counted;
      options.wire = wire;
      Loaded part(files, Unpinned(std::vector<int>(ranks, 1)), options);
      const Traffic loaded = counted.traffic();
      part.Run(ids, ids.size(), kShuffled);
      if (world.process() == 0) traffic = counted.traffic() - loaded;
    });
    return traffic;
  };
  const auto layers = static_cast<uint64_t>(files.spec.layers);
  for (const size_t ranks : {1, 2}) {
    const Traffic whole = sent(kernels::Dtype::kF32, ranks);
    const Traffic half = sent(kernels::Dtype::kBf16, ranks);
    const uint64_t terms = 2 * layers * ranks * ids.size() * HiddenStride(files.spec);
    EXPECT_EQ(whole.bytes - half.bytes, terms * 2) << "and the logits as they are";
    EXPECT_EQ(whole.calls, 2 * layers * ranks + 1);
    EXPECT_EQ(half.calls, 2 * layers + 1) << "all ranks' terms by one call";
  }
}

// Fetched rows lie on the nodes that --memory-policy gives the rest of a rank's memory.
TEST(RankExchange, LiesInTheMemoryOfTheFirstRank) {
  const MemoryPolicy policy{MemoryMode::kStrict, NodesWithMemory(ThisMachine().value())};
  if (const std::string refusal = Grant({policy}).refusal; !refusal.empty())
    GTEST_SKIP() << refusal;
  const DecoderSpec spec = FindModel(testing::ModelFolder("llama")).value().spec;
  for (const kernels::Dtype wire : {kernels::Dtype::kF32, kernels::Dtype::kBf16})
    ThreadWorld(2).Run([&](Communicator& world) {
      DecoderOptions options = Float32();
      options.communicator = &world;
      options.memory = {policy, {}};
      options.wire = wire;
      const auto exchange = RankExchange::Create(spec, options, std::vector<RankModel>(1));
      ASSERT_TRUE(exchange) << exchange.error().message;
      EXPECT_TRUE(testing::IsBound(exchange->storage().data()));
    });
}

}  // namespace
}  // namespace pinion
