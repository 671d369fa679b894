#include "engine/spec/cache_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/spec/attention_spec.h"
#include "engine/spec/kv_tables.h"
#include "tests/engine/spec/configs.h"

namespace pinion {
namespace {

using kernels::KvDtype;
using ::testing::ElementsAre;

std::vector<CacheKind> KindsOf(const std::string& model, uint64_t tokens) {
  return CacheKinds(SpecOf(model), KvDtype::kBf16, tokens);
}

TEST(CacheKinds, FullLayersKeepEveryToken) {
  // 2 planes of 2 heads of 16 in 2 bytes; 2 of 5 layers attend, 3 keep 2 inputs of 64 channels.
  EXPECT_THAT(KindsOf("lfm2", 300),
              ElementsAre(CacheKind{"full", 2, 0, 2 * 128, 300 * 2 * 128},
                          CacheKind{"recurrent", 3, 0, 0, 3 * 2 * 64 * sizeof(float)}));
}

TEST(CacheKinds, WindowedLayersKeepTheirWindow) {
  // A head of 64, 256 bytes a token and layer.
  EXPECT_THAT(KindsOf("gemma3", 300),
              ElementsAre(CacheKind{"windowed", 5, 16, 5 * 256, 16 * 5 * 256},
                          CacheKind{"full", 1, 0, 256, 300 * 256}));
  EXPECT_EQ(KindsOf("gemma3", 10)[0].sequence_bytes, 10u * 5 * 256) << "shorter than the window";
}

TEST(CacheKinds, ChunkedLayersKeepTheirChunk) {
  const auto kinds = KindsOf("llama4", 300);  // 2 heads of 32, 256 bytes
  EXPECT_THAT(kinds, ElementsAre(CacheKind{"chunked", 3, 64, 3 * 256, 64 * 3 * 256},
                                 CacheKind{"full", 1, 0, 256, 300 * 256}));
}

TEST(CacheKinds, LatentLayersKeepOneEntryForAllHeads) {
  EXPECT_THAT(KindsOf("deepseekv2", 300),
              ElementsAre(CacheKind{"latent", 3, 0, 3 * 128, 300 * 3 * 128}));
}

TEST(CacheKinds, LayersWithAttentionAndAStateCountTwice) {
  const auto kinds = KindsOf("falconh1", 300);
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_EQ(kinds[0].layers, 3u);
  EXPECT_EQ(kinds[1].layers, 3u);
  EXPECT_EQ(kinds[1].sequence_bytes, StateBytesPerSequence(SpecOf("falconh1")));
}

TEST(CacheKinds, LayersWithoutKeysOfTheirOwnCountInNone) {
  size_t layers = 0;
  for (const CacheKind& kind : KindsOf("gemma3n", 300)) layers += kind.layers;
  EXPECT_EQ(layers, 3u) << "3 of 6 see those of an earlier one";
}

// The window is as long as the model's longest sequence: nothing is ever behind it.
TEST(CacheKinds, WindowsThatHideNothingAreFull) {
  DecoderSpec spec = SpecOf("gemma3");
  for (LayerSpec& layer : spec.layer_specs)
    if (layer.window > 0) layer.window = spec.max_positions;
  AssignKvTables(spec);
  EXPECT_THAT(CacheKinds(spec, KvDtype::kBf16, 300),
              ElementsAre(CacheKind{"full", 6, 0, 6 * 256, 300 * 6 * 256}));
}

TEST(CacheKinds, AddUpToTheModelsBytes) {
  for (const std::string& model : tests::ModelFixtures()) {
    const DecoderSpec spec = SpecOf(model);
    for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kI8}) {
      uint64_t token = 0, sequence = 0;
      for (const CacheKind& kind : CacheKinds(spec, dtype, 300)) {
        token += kind.token_bytes;
        sequence += kind.sequence_bytes;
      }
      EXPECT_EQ(token, KvBytesPerToken(spec, dtype)) << model;
      EXPECT_EQ(sequence, KvBytesOfSequence(spec, dtype, 300) + StateBytesPerSequence(spec))
          << model;
    }
  }
}

TEST(CacheKinds, AnEncodersLayersTakeThePlaceOfOne) {
  DecoderSpec spec = SpecOf("llama");
  const uint64_t of_layer = KvBytesPerToken(spec, KvDtype::kBf16, 0);
  spec.bidirectional = true;
  AssignKvTables(spec);
  const auto layers = static_cast<size_t>(spec.layers);
  ASSERT_GT(layers, 1u);
  EXPECT_THAT(CacheKinds(spec, KvDtype::kBf16, 300),
              ElementsAre(CacheKind{"full", layers, 0, of_layer, 300 * of_layer}));
}

}  // namespace
}  // namespace pinion
