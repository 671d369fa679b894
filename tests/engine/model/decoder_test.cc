// The decoder without scheduler and sampler: block tables, chunks and ranks by hand.

#include "engine/model/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/model/model.h"
#include "tests/engine/model/golden.h"

namespace pinion {
namespace {

using testing::GoldenPrompt;

Plan Unpinned(std::vector<int> threads) {
  Plan plan;
  for (size_t rank = 0; rank < threads.size(); ++rank)
    plan.ranks.push_back({static_cast<int>(rank), {}, {}, threads[rank]});
  return plan;
}

// One model loaded for a test.
struct Loaded {
  ModelFiles files;
  std::unique_ptr<Ranks> ranks;
  std::unique_ptr<Decoder> decoder;

  Loaded(const std::string& model, const Plan& plan, DecoderOptions options)
      : Loaded(FindModel(testing::ModelFolder(model)).value(), plan, options) {}

  Loaded(ModelFiles model, const Plan& plan, DecoderOptions options) : files(std::move(model)) {
    auto weights = OpenWeights(files);
    CHECK(weights) << weights.error().message;
    ranks = *Ranks::Start(plan);
    auto loaded = Decoder::Load(files.spec, std::move(*weights), *ranks, options);
    CHECK(loaded) << loaded.error().message;
    decoder = *std::move(loaded);
    CHECK(decoder->AllocateKv(64, 1024));
  }

  // Logits of all rows of a sequence computed in chunks; block i of the sequence lies in table[i].
  std::vector<float> Run(const std::vector<int32_t>& ids, size_t chunk,
                         const std::vector<int32_t>& table) {
    const auto vocabulary = static_cast<size_t>(files.spec.vocabulary);
    std::vector<float> all(ids.size() * vocabulary);
    for (size_t at = 0; at < ids.size(); at += chunk) {
      StepBatch batch;
      const size_t rows = std::min(chunk, ids.size() - at);
      batch.tokens.assign(ids.begin() + static_cast<ptrdiff_t>(at),
                          ids.begin() + static_cast<ptrdiff_t>(at + rows));
      batch.slices = {{0, rows, at, table.data()}};
      for (size_t i = 0; i < rows; ++i) batch.logit_rows.push_back(static_cast<int32_t>(i));
      decoder->Forward(batch, [&](const Worker& worker, size_t first, size_t count, float* logits,
                                  size_t stride) {
        if (worker.thread != 0) return;
        for (size_t i = 0; i < count; ++i)
          std::copy_n(logits + i * stride, vocabulary, all.data() + (at + first + i) * vocabulary);
      });
    }
    return all;
  }
};

double WorstError(const GoldenPrompt& golden, const std::vector<float>& logits) {
  const size_t first = (golden.input_ids.size() - golden.rows) * golden.vocabulary;
  double worst = 0;
  for (size_t i = 0; i < golden.logits.size(); ++i)
    worst =
        std::max(worst, std::abs(double{logits[first + i]} - golden.logits[i]) / golden.logit_rms);
  return worst;
}

DecoderOptions Float32() {
  DecoderOptions options;
  options.dtype = kernels::Dtype::kF32;
  options.max_rows = 128;
  options.block_tokens = 16;
  return options;
}

const std::vector<int32_t> kShuffled = {41, 3, 60, 7, 22, 0, 13, 50};

// Experts packed at every step are the same experts: not a bit may differ.
TEST(DecoderExperts, ComputeTheSameFromThePlainLayout) {
  for (const char* name : {"mixtral", "qwen3moe", "gptoss", "deepseekv3"}) {
    const auto ids = testing::LoadGolden(name).back().input_ids;
    for (const auto dtype : {kernels::Dtype::kF32, kernels::Dtype::kBf16}) {
      DecoderOptions options = Float32();
      options.dtype = dtype;
      Loaded prepacked(name, Unpinned({1, 2}), options);
      options.moe_prepack = false;
      Loaded plain(name, Unpinned({1, 2}), options);
      EXPECT_LT(plain.decoder->weight_bytes(), prepacked.decoder->weight_bytes());
      for (const size_t chunk : {1, 32})
        EXPECT_EQ(plain.Run(ids, chunk, kShuffled), prepacked.Run(ids, chunk, kShuffled)) << name;
    }
  }
}

// One token: top_k experts in each layer, each [2 x 64 gate and up, hidden] and [hidden, 64].
TEST(DecoderExperts, CountTheBytesThatAStepMustRead) {
  DecoderOptions options = Float32();
  options.dtype = kernels::Dtype::kBf16;
  Loaded model("qwen3moe", Unpinned({2}), options);
  EXPECT_EQ(model.decoder->expert_bytes_read(), 0u);
  model.Run({7}, 1, kShuffled);
  constexpr uint64_t kExpert = 3 * 64 * 64 * 2, kTopK = 2, kLayers = 2;
  EXPECT_EQ(model.decoder->expert_bytes_read(), kLayers * kTopK * kExpert);
  // Many tokens: every expert at most once a layer, however many tokens chose it.
  const auto before = model.decoder->expert_bytes_read();
  const auto ids = testing::LoadGolden("qwen3moe").back().input_ids;
  model.Run(ids, ids.size(), kShuffled);
  const auto read = model.decoder->expert_bytes_read() - before;
  EXPECT_GT(read, kLayers * kTopK * kExpert);
  EXPECT_LE(read, kLayers * 8 * kExpert);
}

// A model with made-up weights: OLMo 2's norms of all heads, with fewer key-value heads than ranks.
ModelFiles FewKeyHeads() {
  ModelFiles files;
  files.config = Json::ParseFile(testing::ModelFolder("olmo2") + "/config.json").value();
  files.config.Set("num_attention_heads", 8);
  files.config.Set("num_key_value_heads", 2);
  files.config.Set("attention_bias", true);
  files.spec = ReadSpec(files.config).value();
  return files;
}

// Ranks that hold copies of a head must not count it twice, and each must see the others' heads.
TEST(DecoderWholeNorm, IsTheSameOverAnyRanks) {
  const auto ids = testing::LoadGolden("olmo2").back().input_ids;
  Loaded one(FewKeyHeads(), Unpinned({1}), Float32());
  const auto want = one.Run(ids, 32, kShuffled);
  double squares = 0;
  for (const float logit : want) squares += double{logit} * logit;
  const double rms = std::sqrt(squares / static_cast<double>(want.size()));
  ASSERT_GT(rms, 0);
  for (const auto& teams : {std::vector<int>{1, 2}, {1, 1, 1}, {2, 1, 1, 1, 1}}) {
    Loaded many(FewKeyHeads(), Unpinned(teams), Float32());
    const auto got = many.Run(ids, 32, kShuffled);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4 * rms) << i;
  }
}

class DecoderGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(DecoderGolden, MatchesTheReferenceInOneStep) {
  Loaded model(GetParam(), Unpinned({1}), Float32());
  for (const GoldenPrompt& golden : testing::LoadGolden(GetParam()))
    EXPECT_LT(WorstError(golden, model.Run(golden.input_ids, 128, kShuffled)), 3e-4);
}

TEST_P(DecoderGolden, MatchesTheReferenceInChunksOverUnevenTeams) {
  Loaded model(GetParam(), Unpinned({2, 1, 3}), Float32());
  for (const GoldenPrompt& golden : testing::LoadGolden(GetParam()))
    for (size_t chunk : {1, 7})
      EXPECT_LT(WorstError(golden, model.Run(golden.input_ids, chunk, kShuffled)), 3e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, DecoderGolden,
                         ::testing::Values("llama", "llama2", "qwen2", "opt", "tiny-trained",
                                           "mistral", "qwen3", "phi3", "phi3-longrope", "gemma2",
                                           "gemma3", "granite", "olmo2", "mixtral", "qwen3moe",
                                           "gptoss", "deepseekv2", "deepseekv3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace pinion
