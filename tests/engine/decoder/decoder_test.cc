// The decoder without scheduler and sampler: block tables, chunks and ranks by hand.

#include "engine/decoder/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/checkpoint/model.h"
#include "tests/engine/decoder/loaded.h"

namespace pinion {
namespace {

using testing::Float32;
using testing::GoldenPrompt;
using testing::kShuffled;
using testing::Loaded;
using testing::Unpinned;
using testing::WorstError;

// Experts packed at every step are the same experts: not a bit may differ.
TEST(DecoderExperts, ComputeTheSameFromThePlainLayout) {
  for (const char* name : {"mixtral", "qwen3moe", "gptoss", "deepseekv3", "llama4"}) {
    const auto ids = testing::LoadGolden(name).back().input_ids;
    for (const auto dtype : {kernels::Dtype::kF32, kernels::Dtype::kBf16}) {
      DecoderOptions options = Float32();
      options.formats = dtype;
      Loaded prepacked(name, Unpinned({1, 2}), options);
      options.moe_prepack = false;
      Loaded plain(name, Unpinned({1, 2}), options);
      EXPECT_LT(plain.decoder->weight_bytes(), prepacked.decoder->weight_bytes());
      for (const size_t chunk : {1, 32})
        EXPECT_EQ(plain.Run(ids, chunk, kShuffled), prepacked.Run(ids, chunk, kShuffled)) << name;
    }
  }
}

// Matrix tiles get rows with a gap behind each, which few models need, and no small one. Here every
// product of more than one block asks for it, by the same kernel as without: not a bit may
// differ.
TEST(DecoderProducts, AreTheSameOfRowsThatLieApart) {
  kernels::Table apart = kernels::TableFor(kernels::UsableIsas().back());
  apart.stride_bf16 = [](size_t, size_t k_padded) { return k_padded + kernels::kSpreadGap; };
  for (const char* name : {"llama", "mixtral", "gemma2"}) {
    const auto ids = testing::LoadGolden(name).back().input_ids;
    DecoderOptions options = Float32();
    options.formats = kernels::Dtype::kBf16;
    options.isa = apart.isa;
    Loaded together(name, Unpinned({2, 1}), options);
    options.table = &apart;
    Loaded spread(name, Unpinned({2, 1}), options);
    for (const size_t chunk : {1, 128})
      EXPECT_EQ(spread.Run(ids, chunk, kShuffled), together.Run(ids, chunk, kShuffled)) << name;
  }
}

// One token: top_k experts in each layer, each [2 x 64 gate and up, hidden] and [hidden, 64].
TEST(DecoderExperts, CountTheBytesThatAStepMustRead) {
  DecoderOptions options = Float32();
  options.formats = kernels::Dtype::kBf16;
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

// A model with made-up weights: of this kind, with other sizes.
ModelFiles Resized(const std::string& model, const Json::Object& sizes) {
  ModelFiles files;
  files.config = Json::ParseFile(testing::ModelFolder(model) + "/config.json").value();
  for (const auto& [key, value] : sizes) files.config.Set(key, value);
  files.spec = ReadSpec(files.config).value();
  return files;
}

// Sums in another order differ by some roundings to float32.
void ExpectSameLogits(const std::vector<float>& got, const std::vector<float>& want) {
  double squares = 0;
  for (const float logit : want) squares += double{logit} * logit;
  const double rms = std::sqrt(squares / static_cast<double>(want.size()));
  ASSERT_GT(rms, 0);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4 * rms) << i;
}

// The MLP's tiles have several blocks then, the last one fewer, and the last block is not full.
TEST(DecoderProducts, AreTheSameOfManyRowsAtOnce) {
  constexpr size_t kTokens = 150;
  const std::pair<const char*, Json::Object> models[] = {{"llama", {{"intermediate_size", 808}}},
                                                         {"opt", {{"ffn_dim", 808}}}};
  for (const auto& [name, sizes] : models) {
    DecoderOptions options = Float32();
    options.isa = kernels::UsableIsas().back();
    options.max_rows = kTokens;
    Loaded model(Resized(name, sizes), Unpinned({2}), options);
    std::vector<int32_t> ids(kTokens);
    for (size_t i = 0; i < kTokens; ++i) ids[i] = static_cast<int32_t>(7 * i % 448);
    SCOPED_TRACE(name);
    ExpectSameLogits(model.Run(ids, kTokens, kShuffled), model.Run(ids, 1, kShuffled));
  }
}

// Chunks begin within blocks, and steps within chunks.
TEST(DecoderChunks, HideAllThatIsBeforeThem) {
  constexpr size_t kChunk = 24, kTokens = 60, kLogits = 448;
  const Json::Array types(4, Json("chunked_attention"));
  Loaded model(
      Resized("llama4", {{"attention_chunk_size", int64_t{kChunk}}, {"layer_types", types}}),
      Unpinned({1}), Float32());
  std::vector<int32_t> ids(kTokens);
  for (size_t i = 0; i < kTokens; ++i) ids[i] = static_cast<int32_t>(7 * i % kLogits);
  auto others = ids;
  for (size_t i = 0; i < kChunk; ++i) others[i] += 1;
  for (const size_t step : {size_t{1}, size_t{7}, kTokens}) {
    const auto logits = model.Run(ids, step, kShuffled), other = model.Run(others, step, kShuffled);
    const auto behind = static_cast<ptrdiff_t>(kChunk * kLogits);
    EXPECT_FALSE(std::equal(logits.begin(), logits.begin() + behind, other.begin()));
    EXPECT_TRUE(std::equal(logits.begin() + behind, logits.end(), other.begin() + behind)) << step;
  }
}

// OLMo 2's norms of all heads, with fewer key-value heads than ranks.
ModelFiles FewKeyHeads() {
  return Resized(
      "olmo2", {{"num_attention_heads", 8}, {"num_key_value_heads", 2}, {"attention_bias", true}});
}

// Ranks that hold copies of a head must not count it twice, and each must see the others' heads.
TEST(DecoderWholeNorm, IsTheSameOverAnyRanks) {
  const auto ids = testing::LoadGolden("olmo2").back().input_ids;
  Loaded one(FewKeyHeads(), Unpinned({1}), Float32());
  const auto want = one.Run(ids, 32, kShuffled);
  for (const auto& teams : {std::vector<int>{1, 2}, {1, 1, 1}, {2, 1, 1, 1, 1}}) {
    Loaded many(FewKeyHeads(), Unpinned(teams), Float32());
    ExpectSameLogits(many.Run(ids, 32, kShuffled), want);
  }
}

// Weights whose key-value heads are those of `heads`, each repeated for every query head.
class RepeatedHeads : public TensorSource {
 public:
  explicit RepeatedHeads(const ModelFiles& heads)
      : heads_(OpenWeights(heads).value()),
        times_(static_cast<size_t>(heads.spec.heads / heads.spec.kv_heads)),
        head_dim_(static_cast<size_t>(heads.spec.head_dim)) {}

  Result<TensorInfo> Find(const std::string& name) const override {
    auto info = heads_->Find(name);
    if (info && IsRepeated(name)) info->shape[0] *= static_cast<int64_t>(times_);
    return info;
  }
  std::vector<std::string> Names() const override { return heads_->Names(); }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    if (!IsRepeated(info.name)) return heads_->Rows(info, row, count, scratch);
    const TensorInfo own = heads_->Find(info.name).value();
    const size_t bytes = RowElements(info.shape) * kernels::SizeOf(info.dtype);
    std::vector<std::byte> one;
    scratch.resize(count * bytes);
    for (size_t i = 0; i < count; ++i) {
      const size_t head = (row + i) / head_dim_, within = (row + i) % head_dim_;
      const std::byte* src = heads_->Rows(own, head / times_ * head_dim_ + within, 1, one);
      std::copy_n(src, bytes, scratch.data() + i * bytes);
    }
    return scratch.data();
  }
  void Release(const TensorInfo&, size_t, size_t) const override {}

 private:
  static bool IsRepeated(const std::string& name) {
    return name.find("k_proj") != name.npos || name.find("v_proj") != name.npos ||
           name.find("k_norm") != name.npos;
  }
  std::unique_ptr<TensorSource> heads_;
  size_t times_, head_dim_;
};

// Repeating the key heads changes neither the mean square of all keys nor what a query sees.
TEST(DecoderWholeNorm, OfSharedKeyHeadsIsThatOfRepeatedOnes) {
  const auto ids = testing::LoadGolden("olmo2").back().input_ids;
  const ModelFiles few = FewKeyHeads();
  ModelFiles repeated = few;
  repeated.config.Set("num_key_value_heads", 8);
  repeated.spec = ReadSpec(repeated.config).value();
  Loaded shared(few, Unpinned({1}), Float32());
  Loaded whole(repeated, std::make_unique<RepeatedHeads>(few), Unpinned({1}), Float32());
  ExpectSameLogits(shared.Run(ids, 32, kShuffled), whole.Run(ids, 32, kShuffled));
}

// Experts of two blocks each; two ranks have one of each.
TEST(DecoderExperts, WithoutGatesMayBeWiderThanABlock) {
  const ModelFiles files = Resized("nemotronh-moe", {{"moe_intermediate_size", 128}});
  const auto ids = testing::LoadGolden("nemotronh-moe").back().input_ids;
  Loaded one(files, Unpinned({1}), Float32()), two(files, Unpinned({1, 1}), Float32());
  ExpectSameLogits(two.Run(ids, 32, kShuffled), one.Run(ids, 32, kShuffled));
}

// Falcon-H1's five multipliers differ in use, if not in every checkpoint.
TEST(DecoderMamba, EveryPartOfTheProjectionHasAMultiplierOfItsOwn) {
  const auto ids = testing::LoadGolden("falconh1").back().input_ids;
  const ModelFiles files = FindModel(testing::ModelFolder("falconh1")).value();
  const auto logits = [&](float MambaMultipliers::*part, float times) {
    ModelFiles changed = files;
    changed.spec.mamba.multipliers.*part *= times;
    return Loaded(changed, Unpinned({1}), Float32()).Run(ids, 32, kShuffled);
  };
  std::vector<std::vector<float>> all = {logits(&MambaMultipliers::z, 1)};
  for (const auto part : {&MambaMultipliers::z, &MambaMultipliers::x, &MambaMultipliers::b,
                          &MambaMultipliers::c, &MambaMultipliers::dt})
    for (const float times : {2.0f, 4.0f}) all.push_back(logits(part, times));
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << ", " << j;
}

// One kernel call takes 64 heads; their queries are wider than the latents that come out.
TEST(DecoderLatent, MoreHeadsThanACallTakesAreTheSameOverAnyRanks) {
  const ModelFiles files =
      Resized("deepseekv2", {{"num_attention_heads", 72}, {"num_key_value_heads", 72}});
  const auto ids = testing::LoadGolden("deepseekv2").back().input_ids;
  Loaded one(files, Unpinned({1}), Float32()), many(files, Unpinned({1, 1}), Float32());
  ExpectSameLogits(one.Run(ids, 32, kShuffled), many.Run(ids, 32, kShuffled));
}

// The first rank has no part of the dense first layer, but one of every layer of experts: what it
// left there in the step before must not come into this one's sum.
// The chosen tokens of few rows are cut into pieces, those of many are not.
TEST(DecoderIndex, FewRowsMayBeCutOverThreads) {
  const ModelFiles files = Resized("deepseekv3.2", {{"index_topk", 300}});
  const auto ids = testing::LoadGolden("deepseekv3.2").back().input_ids;
  ASSERT_GT(ids.size(), 361u);
  Loaded whole(files, Unpinned({1}), Float32()), cut(files, Unpinned({4}), Float32());
  ExpectSameLogits(cut.Run(ids, 120, kShuffled), whole.Run(ids, 120, kShuffled));
}

TEST(DecoderRanks, WithoutAPartOfALayerAddNothing) {
  const ModelFiles files =
      Resized("deepseekv2", {{"intermediate_size", 64}, {"moe_intermediate_size", 128}});
  const auto ids = testing::LoadGolden("deepseekv2").back().input_ids;
  Loaded one(files, Unpinned({1}), Float32()), two(files, Unpinned({1, 1}), Float32());
  ExpectSameLogits(two.Run(ids, 7, kShuffled), one.Run(ids, 7, kShuffled));
}

class DecoderGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(DecoderGolden, MatchesTheReferenceInOneStep) {
  Loaded model(GetParam(), Unpinned({1}), Float32());
  for (const GoldenPrompt& golden : testing::LoadGolden(GetParam()))
    EXPECT_LT(WorstError(golden, model.Run(golden.input_ids, 128, kShuffled)), 3e-4);
}

TEST_P(DecoderGolden, MatchesTheReferenceInChunksOverUnevenTeams) {
  Loaded model(GetParam(), Unpinned({2, 1, 3}), Float32());
  const auto prompts = testing::LoadGolden(GetParam());
  for (const GoldenPrompt& golden : prompts)
    EXPECT_LT(WorstError(golden, model.Run(golden.input_ids, 7, kShuffled)), 3e-4);
  // One token a step, as in decoding, takes seven times as many steps: one prompt says it.
  const GoldenPrompt& first = prompts.front();
  EXPECT_LT(WorstError(first, model.Run(first.input_ids, 1, kShuffled)), 3e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, DecoderGolden, ::testing::ValuesIn(tests::ModelFixtures()),
                         [](const auto& info) { return tests::TestName(info.param); });

}  // namespace
}  // namespace pinion
