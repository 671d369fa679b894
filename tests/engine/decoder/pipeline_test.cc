#include "engine/decoder/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <numeric>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/decoder/stage_places.h"
#include "engine/spec/stage.h"
#include "engine/weights/weights.h"
#include "tests/engine/comm/thread_world.h"
#include "tests/engine/decoder/loaded.h"
#include "tests/watched.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

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

TEST(StagePlaces, AStageBesideItsNextHasABufferForEachStepInFlight) {
  const auto of = [](const Partition& partition, size_t processes, size_t process, size_t index) {
    const auto buffers = StagePlaces::Of(partition, processes)->BuffersOf(process, index);
    return std::pair(buffers.taken, buffers.given);
  };
  EXPECT_THAT(of({1, 1}, 1, 0, 0), Pair(0, 0)) << "there is nothing to hand on";
  EXPECT_THAT(of({1, 3}, 1, 0, 0), Pair(0, 0)) << "the last takes those of the one before";
  EXPECT_THAT(of({1, 3}, 1, 0, 1), Pair(0, 3));
  EXPECT_THAT(of({1, 3}, 1, 0, 2), Pair(0, 3));
  EXPECT_THAT(of({2, 4}, 2, 0, 0), Pair(0, 0));
  EXPECT_THAT(of({2, 4}, 2, 0, 1), Pair(1, 4)) << "from the other process";
  EXPECT_THAT(of({2, 4}, 2, 1, 0), Pair(0, 1)) << "sent at once";
  EXPECT_THAT(of({2, 4}, 2, 1, 1), Pair(0, 4));
  EXPECT_THAT(of({1, 3}, 3, 1, 0), Pair(1, 1));
  EXPECT_THAT(of({4, 2}, 4, 1, 0), Pair(1, 0)) << "each part of a stage has its own";
  EXPECT_THAT(of({4, 2}, 4, 3, 0), Pair(0, 1));
}

TEST(StagePlaces, RefusesStagesThatNoProcessHasWhole) {
  for (const auto& [tensor, stages, processes] :
       std::vector<std::tuple<int, int, size_t>>{{3, 2, 3}, {1, 3, 2}, {1, 2, 4}, {1, 1, 2}})
    EXPECT_THAT(StagePlaces::Of({tensor, stages}, processes).error().message,
                HasSubstr("processes that were started together"));
}

TEST(StagePlaces, OfferSplitsThatTheProcessesCanShare) {
  const std::regex offer("-tp (\\d+)(?: -pp (\\d+))?");
  for (int tensor = 1; tensor <= 6; ++tensor)
    for (int stages = 1; stages <= 6; ++stages)
      for (size_t processes = 2; processes <= 8; ++processes) {
        const auto places = StagePlaces::Of({tensor, stages}, processes);
        if (places) continue;
        const std::string& told = places.error().message;
        const std::string ways = told.substr(told.find("; use "));
        std::sregex_iterator way(ways.begin(), ways.end(), offer), end;
        EXPECT_NE(way, end) << told;
        for (; way != end; ++way) {
          const int offered = (*way)[2].matched ? std::stoi((*way)[2]) : 1;
          EXPECT_TRUE(StagePlaces::Of({std::stoi((*way)[1]), offered}, processes)) << told;
        }
      }
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

// The logits of a step; of process 0 alone, which has the head.
std::vector<float> LogitsOf(Decoder& decoder, const StepBatch& batch, size_t vocabulary,
                            size_t process) {
  std::vector<float> all(batch.logit_rows.size() * vocabulary);
  decoder.Forward(
      batch, [&](const Worker& worker, size_t first, size_t count, float* logits, size_t stride) {
        EXPECT_EQ(process, 0u) << "it has the head";
        if (worker.thread != 0) return;
        for (size_t i = 0; i < count; ++i)
          std::copy_n(logits + i * stride, vocabulary, all.data() + (first + i) * vocabulary);
      });
  return all;
}

// body(decoder, vocabulary, process) in two processes that have a stage of "llama" each.
void RunTwoStages(const DecoderOptions& options, size_t blocks,
                  const std::function<void(StagedDecoder&, size_t, size_t)>& body) {
  testing::ThreadWorld(2).Run([&](Communicator& world) {
    const ModelFiles files = FindModel(testing::ModelFolder("llama")).value();
    auto pipeline = StartPipeline(files.spec, OpenWeights(files).value(), testing::Unpinned({1}),
                                  options, {1, 2}, &world);
    ASSERT_TRUE(pipeline) << pipeline.error().message;
    ASSERT_TRUE(pipeline->decoder->AllocateKv(blocks, 1024, 1));
    body(*pipeline->decoder, static_cast<size_t>(files.spec.vocabulary), world.process());
  });
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  const float most = *std::max_element(wanted.begin(), wanted.end());
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-4 * most) << i;
}

// A prompt that is cut into parts.
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
  std::vector<float> got;
  RunTwoStages(options, table.size(), [&](Decoder& decoder, size_t vocabulary, size_t process) {
    StepBatch batch;
    batch.tokens = ids;
    batch.slices = {{0, kRows, 0, {table.data()}}};
    batch.logit_rows.resize(kRows);
    std::iota(batch.logit_rows.begin(), batch.logit_rows.end(), 0);
    batch.parts = 3;
    std::vector<float> own = LogitsOf(decoder, batch, vocabulary, process);
    if (process == 0) got = std::move(own);
  });
  ExpectNear(got, wanted);
}

// Five sequences of different lengths that each get a token, in any number of parts.
TEST(Pipeline, DecodesThatAreCutAreThoseOfOneStage) {
  constexpr size_t kSequences = 5;
  const DecoderOptions options = testing::Float32();
  testing::Loaded whole("llama", testing::Unpinned({1}), options);
  std::vector<std::vector<int32_t>> ids(kSequences), tables(kSequences);
  std::vector<float> wanted;
  for (size_t i = 0; i < kSequences; ++i) {
    for (size_t at = 0; at < 4 + 2 * i; ++at)
      ids[i].push_back(static_cast<int32_t>((7 * at + 11 * i + 5) % 90));
    tables[i] = {static_cast<int32_t>(i)};
    whole.Step(ids[i], 0, ids[i].size() - 1, tables[i]);
    const auto row = whole.Step(ids[i], ids[i].size() - 1, 1, tables[i]);
    wanted.insert(wanted.end(), row.begin(), row.end());
  }
  std::vector<std::vector<float>> got(kSequences);
  RunTwoStages(options, kSequences, [&](Decoder& decoder, size_t vocabulary, size_t process) {
    StepBatch prompts, decodes;
    for (size_t i = 0; i < kSequences; ++i) {
      const size_t before = ids[i].size() - 1;
      prompts.slices.push_back({prompts.tokens.size(), before, 0, {tables[i].data()}});
      prompts.tokens.insert(prompts.tokens.end(), ids[i].begin(), ids[i].end() - 1);
      decodes.slices.push_back({i, 1, before, {tables[i].data()}});
      decodes.tokens.push_back(ids[i].back());
      decodes.logit_rows.push_back(static_cast<int32_t>(i));
    }
    LogitsOf(decoder, prompts, vocabulary, process);
    for (decodes.parts = 1; decodes.parts <= kSequences; ++decodes.parts) {
      std::vector<float> own = LogitsOf(decoder, decodes, vocabulary, process);
      if (process == 0) got[decodes.parts - 1] = std::move(own);
    }
  });
  for (const std::vector<float>& each : got) ExpectNear(each, wanted);
}

// A prompt of so many tokens whose rows are all wanted, in blocks from `block` on.
struct PromptStep {
  PromptStep(size_t rows, size_t parts, int32_t first_block, int32_t first_token)
      : table(rows / 16 + 1) {
    std::iota(table.begin(), table.end(), first_block);
    for (size_t i = 0; i < rows; ++i)
      step.tokens.push_back(static_cast<int32_t>((7 * i + static_cast<size_t>(first_token)) % 90));
    step.slices = {{0, rows, 0, {table.data()}}};
    step.logit_rows.resize(rows);
    std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
    step.parts = parts;
  }
  std::vector<int32_t> table;
  StepBatch step;
};

// The last stage is slow, so that the others are ahead of it as far as may be.
TEST(Pipeline, StepsInFlightAreThoseOneAfterTheOther) {
  const ModelFiles files = FindModel(testing::ModelFolder("llama")).value();
  const auto vocabulary = static_cast<size_t>(files.spec.vocabulary);
  DecoderOptions options = testing::Float32();
  options.max_rows = 300;
  auto pipeline = StartPipeline(files.spec, OpenWeights(files).value(), testing::Unpinned({1, 1}),
                                options, {1, 2}, nullptr);
  ASSERT_TRUE(pipeline) << pipeline.error().message;
  StagedDecoder& decoder = *pipeline->decoder;
  ASSERT_TRUE(decoder.AllocateKv(40, 1024, 1));
  std::vector<PromptStep> steps;
  for (const size_t parts : {1, 5, 3, 8, 1, 2})
    steps.emplace_back(60 + 40 * parts % 200, parts, static_cast<int32_t>(20 * (parts % 2)),
                       static_cast<int32_t>(11 * parts));
  std::vector<std::vector<float>> apart, got(steps.size());
  for (const PromptStep& each : steps) apart.push_back(LogitsOf(decoder, each.step, vocabulary, 0));
  size_t ending = 0;
  const LogitsSink sink = [&](const Worker&, size_t first, size_t count, float* logits,
                              size_t stride) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::vector<float>& all = got[ending];
    for (size_t i = 0; i < count; ++i)
      std::copy_n(logits + i * stride, vocabulary, all.data() + (first + i) * vocabulary);
  };
  decoder.Begin(steps[0].step);
  for (; ending < steps.size(); ++ending) {
    if (ending + 1 < steps.size()) decoder.Begin(steps[ending + 1].step);
    got[ending].resize(apart[ending].size());
    decoder.Finish(sink);
    EXPECT_EQ(got[ending], apart[ending]) << ending;
  }
}

// The first stage has computed both steps before anybody takes the logits of one.
TEST(Pipeline, AStageGoesOnToTheNextStepWhileTheOneBehindItHasTheLast) {
  DecoderOptions options = testing::Float32();
  options.max_rows = 60;
  std::promise<void> ahead;
  RunTwoStages(options, 10, [&](StagedDecoder& decoder, size_t vocabulary, size_t process) {
    const PromptStep first(60, 2, 0, 1), second(40, 1, 5, 2);
    decoder.Begin(first.step);
    decoder.Begin(second.step);
    if (process == 0) ahead.get_future().wait();
    const auto ignore = [](const Worker&, size_t, size_t, float*, size_t) {};
    decoder.Finish(ignore);
    decoder.Finish(ignore);
    if (process == 1) ahead.set_value();
    EXPECT_EQ(LogitsOf(decoder, first.step, vocabulary, process).size(), 60 * vocabulary);
  });
}

// A token of each of some sequences that share a prefix, and 70 of a prompt that begins like them;
// what precedes these is in the cache then.
struct LongStep {
  static constexpr size_t kSequences = 5, kLength = 900, kShared = 608, kBlock = 16;
  static constexpr size_t kOwnBlocks = (kLength - kShared) / kBlock + 1;
  static constexpr size_t kCacheBlocks = kShared / kBlock + (kSequences + 1) * kOwnBlocks;

  explicit LongStep(Decoder& decoder) {
    for (size_t i = 0; i <= kSequences; ++i) {
      const size_t length = kLength - 23 * i, rows = i < kSequences ? 1 : 70;
      for (size_t block = 0; block <= length / kBlock; ++block)
        tables[i].push_back(
            static_cast<int32_t>(block < kShared / kBlock ? block : block + i * kOwnBlocks));
      StepBatch prompt;
      for (size_t at = 0; at < length; ++at)
        prompt.tokens.push_back(static_cast<int32_t>((7 * at + (at < kShared ? 0 : 11 * i)) % 90));
      prompt.slices = {{0, length, 0, {tables[i].data()}}};
      LogitsOf(decoder, prompt, 0, 0);
      step.slices.push_back({step.tokens.size(), rows, length - rows, {tables[i].data()}});
      step.tokens.insert(step.tokens.end(), prompt.tokens.end() - static_cast<ptrdiff_t>(rows),
                         prompt.tokens.end());
    }
    step.logit_rows.resize(step.tokens.size());
    std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
  }

  std::array<std::vector<int32_t>, kSequences + 1> tables;
  StepBatch step;
};

// Two threads of a stage divide long contexts, and sequences share a prefix, or their tokens choose
// what they see. How many parts a step has follows from measured times, from which no result may
// follow.
class PipelineParts : public ::testing::TestWithParam<const char*> {};

// A fault in the division of the work is the same on every path, so a sanitizer watches one.
// test_kernels holds the kernels to their memory one by one.
std::vector<kernels::Isa> IsasToTry() {
  const std::vector<kernels::Isa>& usable = kernels::UsableIsas();
  return tests::Watched() ? std::vector{usable.back()} : usable;
}

TEST_P(PipelineParts, NotABitDependsOnTheirNumber) {
  const ModelFiles files = FindModel(testing::ModelFolder(GetParam())).value();
  for (const kernels::Isa isa : IsasToTry()) {
    DecoderOptions options = testing::Float32();
    options.isa = isa;
    options.max_rows = LongStep::kLength;
    auto pipeline = StartPipeline(files.spec, OpenWeights(files).value(), testing::Unpinned({2, 2}),
                                  options, {1, 2}, nullptr);
    ASSERT_TRUE(pipeline) << pipeline.error().message;
    Decoder& decoder = *pipeline->decoder;
    ASSERT_TRUE(decoder.AllocateKv(LongStep::kCacheBlocks, 1024, 1));
    LongStep all(decoder);
    StepBatch& step = all.step;
    const auto vocabulary = static_cast<size_t>(files.spec.vocabulary);
    const std::vector<float> whole = LogitsOf(decoder, step, vocabulary, 0);
    for (const size_t parts : {2, 8, 4}) {
      step.parts = parts;
      EXPECT_EQ(LogitsOf(decoder, step, vocabulary, 0), whole)
          << parts << " parts by " << kernels::Name(isa);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pipeline, PipelineParts, ::testing::Values("llama", "deepseekv3.2"),
                         [](const auto& info) {
                           return std::string(info.param == std::string("llama") ? "Whole"
                                                                                 : "Chosen");
                         });

}  // namespace
}  // namespace pinion
