#include "engine/decoder/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/spec/stage.h"
#include "engine/weights/weights.h"
#include "tests/engine/comm/thread_world.h"
#include "tests/engine/decoder/loaded.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rank 0 is in process 0, which samples: it has the head.
TEST(StagePlaces, TheFirstProcessHasTheLastStage) {
  const StagePlaces whole = *StagePlaces::Of({2, 4}, 2);
  EXPECT_EQ(whole.ranks(), 4u);
  EXPECT_THAT(whole.StagesIn(0), ElementsAre(3, 2));
  EXPECT_THAT(whole.StagesIn(1), ElementsAre(1, 0));
  EXPECT_EQ(whole.ProcessOf(1, 0), 1u);
  EXPECT_EQ(whole.ProcessOf(2, 1), 0u);
  const StagePlaces parts = *StagePlaces::Of({4, 2}, 4);
  EXPECT_EQ(parts.ranks(), 2u);
  EXPECT_EQ(parts.tensor(), 2);
  EXPECT_EQ(parts.per_stage(), 2u);
  EXPECT_THAT(parts.StagesIn(1), ElementsAre(1));
  EXPECT_THAT(parts.StagesIn(2), ElementsAre(0));
  EXPECT_EQ(parts.ProcessOf(0, 1), 3u) << "the same half of the stage before";
  EXPECT_EQ(parts.ProcessOf(1, 2), 0u);
  EXPECT_THAT(StagePlaces::Of({1, 3}, 1)->StagesIn(0), ElementsAre(2, 1, 0));
}

TEST(StagePlaces, RefusesStagesThatNoProcessHasWhole) {
  for (const auto& [tensor, stages, processes] :
       std::vector<std::tuple<int, int, size_t>>{{3, 2, 3}, {1, 3, 2}, {1, 2, 4}, {1, 1, 2}})
    EXPECT_THAT(StagePlaces::Of({tensor, stages}, processes).error().message,
                HasSubstr("processes that were started together"));
}

// 16 layers of the same size, and a head as large as four of them: so that no stage has more than
// it must.
TEST(StageLayers, BalanceBytes) {
  const DecoderSpec spec = FindModel("preset:llama-3.2-1b").value().spec;
  for (const int stages : {2, 3, 4, 16}) {
    const auto layers = StageLayers(spec, kernels::Dtype::kBf16, stages);
    ASSERT_EQ(layers.size(), static_cast<size_t>(stages));
    EXPECT_EQ(layers.front().begin, 0u);
    EXPECT_EQ(layers.back().end, 16u);
    for (size_t i = 0; i < layers.size(); ++i) {
      EXPECT_GT(layers[i].size(), 0u);
      EXPECT_EQ(layers[i].begin, i == 0 ? 0 : layers[i - 1].end);
    }
  }
  const auto halves = StageLayers(spec, kernels::Dtype::kBf16, 2);
  EXPECT_EQ(halves[0].size(), 10u) << "6 layers and the head behind it";
}

// Layers 3 to 5 see the keys and values of 1 and 2, so that only layer 0 can stand alone.
TEST(StageLayers, KeepLayersTogetherThatShareKeysAndValues) {
  const DecoderSpec spec = FindModel(testing::ModelFolder("gemma4-e")).value().spec;
  EXPECT_THAT(StageBegins(spec), ElementsAre(0, 1));
  const auto layers = StageLayers(spec, kernels::Dtype::kBf16, 2);
  EXPECT_EQ(layers[0].end, 1u);
  EXPECT_EQ(layers[1].end, 6u);
  DecoderSpec plain = spec;
  for (LayerSpec& layer : plain.layer_specs) layer.kv_from = -1;
  EXPECT_THAT(StageBegins(plain), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(StageLayers, TogetherTheyHoldTheModelOnce) {
  for (const char* model : {"llama", "opt", "gemma3", "gptoss", "qwen3.5-text", "nemotronh"}) {
    const DecoderSpec spec = FindModel(testing::ModelFolder(model)).value().spec;
    const auto bytes = [](const DecoderSpec& part) {
      return ShardWeightBytes(part, kernels::Dtype::kF32, true, 1, 0);
    };
    uint64_t sum = 0;
    for (const DecoderSpec& stage : StageSpecs(spec, kernels::Dtype::kF32, 2)) sum += bytes(stage);
    EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(bytes(spec)), 64) << model;
  }
}

// Every process has one stage; the leader hands out the logits of a step that is cut into parts.
TEST(Pipeline, ProcessesHandHiddenStatesOn) {
  constexpr size_t kRows = 300;
  std::vector<int32_t> ids(kRows);
  for (size_t i = 0; i < kRows; ++i) ids[i] = static_cast<int32_t>((7 * i + 5) % 90);
  std::vector<int32_t> table(kRows / 16 + 1);
  std::iota(table.begin(), table.end(), 0);
  DecoderOptions options = testing::Float32();
  options.max_rows = kRows;
  testing::Loaded whole("llama", testing::Unpinned({1}), options);
  const std::vector<float> wanted = whole.Step(ids, 0, kRows, table);
  std::vector<float> got(wanted.size());
  testing::ThreadWorld(2).Run([&](Communicator& world) {
    const ModelFiles files = FindModel(testing::ModelFolder("llama")).value();
    auto pipeline = StartPipeline(files.spec, OpenWeights(files).value(), testing::Unpinned({1}),
                                  options, {1, 2}, &world);
    ASSERT_TRUE(pipeline) << pipeline.error().message;
    Decoder& decoder = *pipeline->decoder;
    ASSERT_TRUE(decoder.AllocateKv(table.size(), 1024, 1));
    StepBatch batch;
    batch.tokens = ids;
    batch.slices = {{0, kRows, 0, {table.data()}}};
    batch.logit_rows.resize(kRows);
    std::iota(batch.logit_rows.begin(), batch.logit_rows.end(), 0);
    const auto vocabulary = static_cast<size_t>(files.spec.vocabulary);
    decoder.Forward(
        batch, [&](const Worker& worker, size_t first, size_t count, float* logits, size_t stride) {
          EXPECT_EQ(world.process(), 0u) << "it has the head";
          if (worker.thread != 0) return;
          for (size_t i = 0; i < count; ++i)
            std::copy_n(logits + i * stride, vocabulary, got.data() + (first + i) * vocabulary);
        });
  });
  const float most = *std::max_element(wanted.begin(), wanted.end());
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-4 * most) << i;
}

}  // namespace
}  // namespace pinion
