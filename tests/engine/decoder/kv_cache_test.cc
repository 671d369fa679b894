#include "engine/decoder/kv_cache.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "engine/base/check.h"
#include "engine/checkpoint/preset.h"
#include "engine/spec/kv_tables.h"
#include "tests/engine/spec/configs.h"
#include "tests/kernels/kv_block.h"

namespace pinion {
namespace {

using kernels::KvDtype;

constexpr size_t kBlockTokens = 64;

struct Cache {
  DecoderSpec spec;
  Shard shard;
  KvCache cache;

  Cache(const std::string& preset, KvDtype dtype, size_t blocks, int ranks = 1)
      : spec(ReadSpec(PresetConfig(preset).value()).value()),
        shard(MakeShard(spec, ranks, 0)),
        cache(KvCache::Allocate(spec, shard, dtype, kBlockTokens, blocks).value()) {}

  size_t layers() const { return static_cast<size_t>(spec.layers); }
  size_t heads() const { return shard.kv_heads.size(); }
};

struct Place {
  uintptr_t begin, end;
};

// Of a block in every plane.
std::vector<Place> PlacesOf(const Cache& c, size_t block) {
  const KvCache& cache = c.cache;
  std::vector<Place> places;
  const auto add = [&](const std::byte* plane, const kernels::KvStrides& strides, size_t dim) {
    const auto begin = reinterpret_cast<uintptr_t>(plane + strides.At(block));
    places.push_back(
        {begin, begin + kernels::KvPlaneBlockBytes(cache.dtype(), cache.block_tokens(), dim)});
  };
  for (size_t layer = 0; layer < c.layers(); ++layer) {
    for (size_t head = 0; head < c.heads(); ++head) {
      add(cache.keys(layer, head), cache.key_strides(0), cache.shape(0).key_dim);
      if (cache.values(layer, head))
        add(cache.values(layer, head), cache.value_strides(0), cache.shape(0).value_dim);
    }
  }
  return places;
}

size_t HugePages(const std::vector<Place>& places) {
  std::set<uintptr_t> pages;
  for (const Place& place : places) {
    for (uintptr_t page = place.begin / kHugePageBytes; page * kHugePageBytes < place.end; ++page)
      pages.insert(page);
  }
  return pages.size();
}

// Narrow heads, wide ones, none but a latent, one that is shared out; with and without scales;
// numbers of blocks that do not fill the last span, and one.
TEST(KvCache, NoTwoBlocksOverlap) {
  for (const char* preset :
       {"llama-3.2-1b@3", "qwen2.5-0.5b@2", "qwen3-30b-a3b@2", "deepseek-v2-lite@2"}) {
    for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kI8, KvDtype::kF32}) {
      for (const size_t blocks : {1, 37, 131}) {
        const Cache c(preset, dtype, blocks, 2);
        std::vector<Place> places;
        for (size_t block = 0; block < blocks; ++block) {
          for (const Place& place : PlacesOf(c, block)) places.push_back(place);
        }
        std::sort(places.begin(), places.end(),
                  [](const Place& a, const Place& b) { return a.begin < b.begin; });
        const Pages& storage = c.cache.storage();
        const auto first = reinterpret_cast<uintptr_t>(storage.data());
        uint64_t bytes = 0;
        for (size_t i = 0; i < places.size(); ++i) {
          ASSERT_EQ(places[i].begin % 64, 0u);
          ASSERT_GE(places[i].begin, i > 0 ? places[i - 1].end : first) << preset << " " << i;
          bytes += places[i].end - places[i].begin;
        }
        EXPECT_LE(places.back().end, first + storage.size_bytes());
        EXPECT_EQ(bytes, c.cache.size_bytes());
      }
    }
  }
}

// Gemma 4's layers differ in size and in how far they see: a block is a page of the layers of one
// table, whichever that is.
TEST(KvCache, APageHoldsTheLayersOfEachTable) {
  for (const char* model : {"gemma4-dense", "gemma4-e", "gemma4-moe"}) {
    for (const KvDtype dtype : {KvDtype::kBf16, KvDtype::kI8, KvDtype::kF32}) {
      for (const int ranks : {1, 2}) {
        constexpr size_t kBlocks = 5;
        const DecoderSpec spec = SpecOf(model);
        const Shard shard = MakeShard(spec, ranks, 0);
        const KvCache cache = KvCache::Allocate(spec, shard, dtype, 16, kBlocks).value();
        const size_t page = cache.size_bytes() / kBlocks;
        std::vector<size_t> most;
        for (size_t table = 0; table < KvTables(spec); ++table) {
          std::vector<Place> places;
          for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
            const KvPlace at = KvPlaceOf(spec, layer);
            if (!Caches(spec.layer_specs[layer]) || at.table != table) continue;
            const KvShape& shape = cache.shape(at.layer);
            for (size_t head = 0; head < shard.Heads(layer).kv_heads.size(); ++head)
              for (size_t block = 0; block < kBlocks; ++block)
                for (const auto& [plane, strides, dim] :
                     {std::tuple{cache.keys(at.layer, head), cache.key_strides(at.layer),
                                 shape.key_dim},
                      {cache.values(at.layer, head), cache.value_strides(at.layer),
                       shape.value_dim}}) {
                  const auto begin =
                      static_cast<size_t>(plane + strides.At(block) - cache.storage().data());
                  const size_t end = begin + kernels::KvPlaneBlockBytes(dtype, 16, dim);
                  ASSERT_EQ(begin % 64, 0u);
                  ASSERT_GE(begin, block * page) << model;
                  ASSERT_LE(end, (block + 1) * page) << model;
                  places.push_back({begin, end});
                }
          }
          std::sort(places.begin(), places.end(),
                    [](const Place& a, const Place& b) { return a.begin < b.begin; });
          size_t bytes = 0;
          for (size_t i = 0; i < places.size(); ++i) {
            if (i > 0) {
              ASSERT_GE(places[i].begin, places[i - 1].end) << model << " " << table;
            }
            bytes += places[i].end - places[i].begin;
          }
          most.push_back(bytes / kBlocks);
        }
        EXPECT_GT(most.size(), 1u) << model;
        EXPECT_EQ(*std::max_element(most.begin(), most.end()), page) << "nothing is left over";
      }
    }
  }
}

TEST(KvCache, ASpanIsTheHugePageOfALayer) {
  const Cache c("llama-3.2-1b", KvDtype::kBf16, 1024);
  EXPECT_EQ(c.cache.key_strides(0).blocks(), 16u);
  std::vector<Place> places;
  for (size_t block = 16; block < 32; ++block) {
    for (const Place& place : PlacesOf(c, block)) places.push_back(place);
    EXPECT_EQ(HugePages(places), c.layers());
  }
}

// Of many heads, and of wide ones: a head's keys are read for at least 64 KiB in a row, its values
// with them or after them.
TEST(KvCache, StretchesAreLongHoweverManyHeadsThereAre) {
  for (const char* preset : {"llama-3.2-1b", "llama-2-7b", "gemma-2-2b", "deepseek-v2-lite"}) {
    const Cache c(preset, KvDtype::kBf16, 256);
    const kernels::KvStrides& strides = c.cache.key_strides(0);
    EXPECT_GE(strides.blocks() * strides.block, size_t{64} << 10) << preset;
  }
}

// Whole spans are address space; of a small cache less than half of it.
TEST(KvCache, RoundsUpToLessThanASpanALayer) {
  for (const size_t blocks : {1, 3, 5, 16, 17, 100, 1000}) {
    const Cache c("llama-3.2-1b", KvDtype::kBf16, blocks);
    const size_t rest = c.cache.storage().size_bytes() - c.cache.size_bytes();
    EXPECT_EQ(c.cache.size_bytes(), blocks * (size_t{2} << 20));  // 128 KiB a layer
    EXPECT_LT(rest, c.layers() * c.cache.key_strides(0).span) << blocks;
    EXPECT_LT(rest, c.cache.size_bytes()) << blocks;
  }
}

bool Resident(uintptr_t address) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char state = 0;
  void* const begin = reinterpret_cast<void*>(address / page * page);  // NOLINT(*-no-int-to-ptr)
  CHECK(mincore(begin, 1, &state) == 0);
  return state & 1;
}

// In a layer, and without a change of what is there.
// Of small pages, each of which must be touched.
TEST(KvCache, TouchesTheMemoryOfBlocks) {
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  Cache c("qwen3-30b-a3b@2", KvDtype::kF32, 300);
  const size_t span = c.cache.span_blocks(), first = 2 * span;
  ASSERT_LE(4 * span, 300u);
  const int32_t block = static_cast<int32_t>(first);
  const std::vector<float> ones(c.cache.shape(0).key_dim, 1);
  c.cache.Write(kernels::TableFor(kernels::Isa::kScalar), 1, 0, &block,
                {0, ones.data(), ones.data()});
  c.cache.Touch(1, first, first + span);
  c.cache.Touch(1, first, first);
  const std::byte* keys = c.cache.keys(1, 0);
  const kernels::testing::KvBlock written = {keys + c.cache.key_strides(0).At(first), KvDtype::kF32,
                                             kBlockTokens, c.cache.shape(0).key_dim};
  EXPECT_EQ(written.Key(0, 5), 1);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)),
               bytes = c.cache.key_strides(0).span;
  const auto begin = reinterpret_cast<uintptr_t>(keys);
  for (size_t at = 0; at < bytes; at += page) {
    EXPECT_TRUE(Resident(begin + 2 * bytes + at)) << at;
    EXPECT_FALSE(Resident(begin + 3 * bytes + at)) << at;
    EXPECT_FALSE(Resident(begin + bytes + at)) << at;
  }
  prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

TEST(KvCache, WritesTheSlotsThatAttentionReads) {
  for (const char* preset : {"llama-3.2-1b@2", "qwen3-30b-a3b@2", "deepseek-v2-lite@2"}) {
    Cache c(preset, KvDtype::kF32, 70);
    const KvShape& shape = c.cache.shape(0);
    const int32_t table[] = {69, 2, 33};
    std::vector<float> key(shape.key_dim), value(shape.value_dim);
    const size_t position = 2 * kBlockTokens + 5, head = c.heads() - 1;
    for (size_t d = 0; d < key.size(); ++d) key[d] = static_cast<float>(d + 1);
    for (size_t d = 0; d < value.size(); ++d) value[d] = -static_cast<float>(d + 1);
    c.cache.Write(kernels::TableFor(kernels::Isa::kScalar), 1, head, table,
                  {position, key.data(), value.data()});
    const kernels::testing::KvBlock keys = {c.cache.keys(1, head) + c.cache.key_strides(0).At(33),
                                            KvDtype::kF32, kBlockTokens, shape.key_dim};
    for (size_t d = 0; d < key.size(); ++d) EXPECT_EQ(keys.Key(5, d), key[d]);
    if (shape.latent) {
      EXPECT_EQ(c.cache.values(1, head), nullptr);
      continue;
    }
    const kernels::testing::KvBlock values = {
        c.cache.values(1, head) + c.cache.value_strides(0).At(33), KvDtype::kF32, kBlockTokens,
        shape.value_dim};
    for (size_t d = 0; d < value.size(); ++d) EXPECT_EQ(values.Value(5, d), value[d]);
  }
}

}  // namespace
}  // namespace pinion
