#include "engine/spec/kv_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "engine/spec/stage.h"
#include "tests/engine/spec/configs.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;

// Llama's with layers of these windows, of which `kinds` says how they repeat.
DecoderSpec WithWindows(size_t layers, const std::vector<int>& kinds) {
  DecoderSpec spec = SpecOf("llama");
  spec.max_positions = 100000;
  spec.layers = static_cast<int>(layers);
  spec.layer_specs.assign(layers, LayerSpec{});
  for (size_t layer = 0; layer < layers; ++layer)
    spec.layer_specs[layer].window = kinds[layer % kinds.size()];
  AssignKvTables(spec);
  return spec;
}

std::vector<int> WindowsOf(const DecoderSpec& spec) {
  std::vector<int> windows;
  for (const Reach& reach : KvReaches(spec)) windows.push_back(reach.window);
  return windows;
}

TEST(Reach, CountsTheTokensThatTheNextOneSees) {
  EXPECT_EQ((Reach{}.First(99)), 0u);
  EXPECT_EQ((Reach{.window = 10}.First(9)), 0u);
  EXPECT_EQ((Reach{.window = 10}.First(10)), 1u);
  EXPECT_EQ((Reach{.chunk = 8}.First(7)), 0u);
  EXPECT_EQ((Reach{.chunk = 8}.First(8)), 8u);
  EXPECT_EQ((Reach{.window = 10, .chunk = 8}.First(23)), 16u);
  EXPECT_EQ((Reach{.window = 3, .chunk = 8}.First(23)), 21u);
}

TEST(KvTables, LayersThatSeeEquallyFarShareOne) {
  EXPECT_THAT(WindowsOf(WithWindows(12, {0})), ElementsAre(0));
  EXPECT_THAT(WindowsOf(WithWindows(12, {128})), ElementsAre(128));
  EXPECT_EQ(KvLayers(WithWindows(12, {128})), 12u);
}

// gpt-oss-20b: every other layer.
TEST(KvTables, HalvesOfALayerKindHaveATableEach) {
  const DecoderSpec spec = WithWindows(24, {128, 0});
  EXPECT_THAT(WindowsOf(spec), ElementsAre(0, 128));
  EXPECT_EQ(KvLayers(spec), 12u);
  EXPECT_EQ(KvPlaceOf(spec, 0).table, 1u);
  EXPECT_EQ(KvPlaceOf(spec, 1).table, 0u);
  EXPECT_EQ(KvPlaceOf(spec, 23).layer, 11u);
}

// Gemma 3 4B: 34 layers, the sixth of six sees everything.
TEST(KvTables, AKindWithMoreLayersHasSeveral) {
  const DecoderSpec spec = WithWindows(34, {1024, 1024, 1024, 1024, 1024, 0});
  EXPECT_THAT(WindowsOf(spec), ElementsAre(0, 1024, 1024, 1024, 1024, 1024, 1024));
  EXPECT_EQ(KvLayers(spec), 5u);
  std::set<std::pair<size_t, size_t>> places;
  for (size_t layer = 0; layer < 34; ++layer) {
    const KvPlace place = KvPlaceOf(spec, layer);
    EXPECT_LT(place.layer, 5u);
    EXPECT_TRUE(places.insert({place.table, place.layer}).second) << layer;
  }
}

TEST(KvTables, AreNeverMoreThanAStepHoldsOfASequence) {
  for (const size_t layers : {9u, 26u, 62u, 97u}) {
    std::vector<int> kinds(layers, 64);
    kinds.back() = 0;  // a single one sees everything
    const DecoderSpec spec = WithWindows(layers, kinds);
    EXPECT_LE(KvTables(spec), kMostKvTables) << layers;
    EXPECT_GE(KvTables(spec) * KvLayers(spec), layers);
    EXPECT_EQ(KvReaches(spec)[0].window, 0);
  }
}

TEST(KvTables, AWindowOverEverySequenceIsDropped) {
  DecoderSpec spec = WithWindows(4, {512, 0});
  spec.max_positions = 512;
  AssignKvTables(spec);
  EXPECT_THAT(WindowsOf(spec), ElementsAre(0));
}

// Gemma 4 26B-A4B: five of six layers with 8 KV heads of 256, the others with 2 of 512.
TEST(KvTables, HoldAsMuchAsTheOthersIfEntriesDiffer) {
  DecoderSpec spec = WithWindows(30, {1024, 1024, 1024, 1024, 1024, 0});
  for (LayerSpec& layer : spec.layer_specs) {
    layer.kv_heads = layer.window > 0 ? 8 : 2;
    layer.head_dim = layer.window > 0 ? 256 : 512;
  }
  AssignKvTables(spec);
  // A block has room for the five layers that see everything, or for two of the others.
  std::vector<int> windows(14, 1024);
  windows[0] = 0;
  EXPECT_EQ(WindowsOf(spec), windows);
  EXPECT_FALSE(ShareCacheLayers(spec));
  EXPECT_EQ(KvLayers(spec), 30u);
  std::map<size_t, int64_t> entries;
  for (size_t layer = 0; layer < 30; ++layer) {
    EXPECT_EQ(KvPlaceOf(spec, layer).layer, layer);
    entries[KvPlaceOf(spec, layer).table] += LayerHeads(spec, layer).kv();
  }
  for (const auto& [table, sum] : entries) EXPECT_LE(sum, 5 * 2 * 512) << table;
}

// A layer that sees another's keys and values, but further than it, would miss them.
TEST(KvTables, StayOneIfAReaderSeesFurtherThanTheLayerThatItReads) {
  DecoderSpec spec = WithWindows(6, {512, 0, 512});
  spec.layer_specs[4].kv_from = 2;  // sees everything
  AssignKvTables(spec);
  EXPECT_THAT(WindowsOf(spec), ElementsAre(0));
  spec.layer_specs[4].kv_from = 1;
  AssignKvTables(spec);
  EXPECT_EQ(KvPlaceOf(spec, 4).table, KvPlaceOf(spec, 1).table);
  EXPECT_EQ(KvPlaceOf(spec, 4).layer, KvPlaceOf(spec, 1).layer);
  EXPECT_EQ(KvReaches(spec)[0].window, 0);
  EXPECT_GT(KvTables(spec), 1u);
}

TEST(KvTables, AreOneAndKeepEverythingIfTokensSeeThoseBehindThem) {
  DecoderSpec spec = WithWindows(4, {512});
  spec.bidirectional = true;
  AssignKvTables(spec);
  EXPECT_THAT(WindowsOf(spec), ElementsAre(0));
}

// Nothing reads a layer's keys and values after the layer, as a text is computed in one step.
TEST(KvTables, AnEncodersLayersTakeTurnsInOnePlace) {
  DecoderSpec decoder = WithWindows(4, {0, 8});
  DecoderSpec encoder = decoder;
  encoder.bidirectional = true;
  AssignKvTables(encoder);
  EXPECT_EQ(KvLayers(encoder), 1u);
  for (size_t layer = 0; layer < 4; ++layer)
    EXPECT_EQ(KvPlaceOf(encoder, layer).layer, 0u) << layer;
  for (const auto dtype : {kernels::KvDtype::kBf16, kernels::KvDtype::kI8}) {
    EXPECT_EQ(KvBytesPerToken(encoder, dtype), KvBytesPerToken(encoder, dtype, 0));
    EXPECT_EQ(KvBytesPerToken(decoder, dtype), 4 * KvBytesPerToken(decoder, dtype, 0));
    EXPECT_EQ(KvBytesOfSequence(encoder, dtype, 100), 100 * KvBytesPerToken(encoder, dtype, 0));
  }
}

TEST(KvTables, AnEncoderKeepsALayerThatAnotherReads) {
  DecoderSpec encoder = WithWindows(3, {0});
  encoder.bidirectional = true;
  encoder.layer_specs[2].kv_from = 0;
  AssignKvTables(encoder);
  EXPECT_EQ(KvLayers(encoder), 2u);
  EXPECT_EQ(KvPlaceOf(encoder, 1).layer, 1u);
}

TEST(KvTables, AnEncodersLayersOfDifferentShapesHavePlacesOfTheirOwn) {
  DecoderSpec encoder = WithWindows(3, {0});
  encoder.bidirectional = true;
  encoder.layer_specs[1].kv_heads = 1;
  AssignKvTables(encoder);
  EXPECT_EQ(KvLayers(encoder), 3u);
  EXPECT_EQ(KvPlaceOf(encoder, 2).layer, 2u);
  EXPECT_EQ(KvBytesPerToken(encoder, kernels::KvDtype::kBf16),
            2 * KvBytesPerToken(encoder, kernels::KvDtype::kBf16, 0) +
                KvBytesPerToken(encoder, kernels::KvDtype::kBf16, 1));
}

TEST(KvTables, AStagesLayersKeepTheirTables) {
  const DecoderSpec whole = WithWindows(24, {128, 0});
  const DecoderSpec stage = StageOf(whole, 12, 24);
  EXPECT_EQ(KvTables(stage), 2u);
  EXPECT_EQ(KvLayers(stage), 6u);
  EXPECT_EQ(KvPlaceOf(stage, 12).table, 1u);
  EXPECT_EQ(KvPlaceOf(stage, 12).layer, 0u);
}

}  // namespace
}  // namespace pinion
