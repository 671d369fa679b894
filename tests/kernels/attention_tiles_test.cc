// Attention on matrix tiles, run on an emulation of them, against the scalar kernel.

#include <algorithm>

#include "tests/kernels/emulated_tiles.h"
#include "tests/kernels/vec_plain.h"
//
#include "kernels/impl/attention.inl.h"
#include "kernels/impl/attention_tiles.inl.h"

namespace pinion::kernels::testing {
namespace {

// bfloat16 as it is stored, in plain C++: what an operand of VDPBF16PS looks like to the templates.
struct PlainBf16 {
  using X = Bf16;
  static constexpr Dtype kDtype = Dtype::kBf16;
  static constexpr size_t kStepK = 2, kSubs = 2, kBytes = 4;

  template <bool half>
  static impl::Vec Load(const std::byte* w, size_t sub) {
    const impl::Vec pairs = impl::LoadWords<half>(w);
    return sub == 0 ? impl::EvenOfPairs(pairs) : impl::OddOfPairs(pairs);
  }
  static impl::Vec Spread(const Bf16* x, size_t sub) { return impl::Set(impl::Widen(x[sub])); }
  static impl::Vec MultiplyAdd(impl::Vec w, impl::Vec x, impl::Vec sum) { return w * x + sum; }
  static void Put(Bf16* x, impl::Vec v) { impl::StoreBf16(x, v); }
};

void RunOnTiles(const AttentionArgs& args) {
  ASSERT_TRUE(impl::FillsTiles(args));
  impl::AttentionAs<PlainBf16, impl::TileProducts<PlainBf16, Emulated<PairOfBf16>>>(args);
  EXPECT_FALSE(EmulatedTiles::Now().configured) << "tiles were kept";
}

struct Shape {
  size_t tokens, group, key_dim, value_dim, block_tokens;
  int64_t first_position;
  int64_t window = kNoWindow;
  float soft_cap = 0;
  bool latent = false;
};

std::ostream& operator<<(std::ostream& os, const Shape& s) {
  return os << s.tokens << " tokens, group " << s.group << ", dims " << s.key_dim << " "
            << s.value_dim << ", block " << s.block_tokens << ", first " << s.first_position
            << ", window " << s.window << ", cap " << s.soft_cap << (s.latent ? ", latent" : "");
}

// A cache in shuffled blocks, two a stretch, the last of which ends at a page's end; queries that
// bfloat16 holds exactly.
struct Scene {
  Shape shape;
  size_t context, blocks;
  KvStrides key_strides, value_strides;
  Guarded<std::byte> keys, values;
  std::vector<int32_t> table;
  std::vector<float> q;
  std::vector<const float*> q_rows;
  std::vector<int64_t> positions;

  explicit Scene(const Shape& s)
      : shape(s),
        context(static_cast<size_t>(s.first_position) + s.tokens),
        blocks((context + s.block_tokens - 1) / s.block_tokens),
        key_strides(Pairs(s.block_tokens, s.key_dim)),
        value_strides(Pairs(s.block_tokens, s.value_dim)),
        keys(key_strides.At(blocks - 1) + key_strides.block, 64),
        values(s.latent ? 64 : value_strides.At(blocks - 1) + value_strides.block, 64),
        table(blocks),
        q(Normal(s.tokens * s.group * s.key_dim, 1)) {
    std::memset(keys.data(), 0xff, keys.size());  // NaN in slots without a token
    std::memset(values.data(), 0xff, values.size());
    for (float& v : q) v = ToFloat(ToBf16(v));
    for (size_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i);
    std::shuffle(table.begin(), table.end(), std::mt19937(2));
    const std::vector<float> k = Normal(context * s.key_dim, 3),
                             v = Normal(context * s.value_dim, 4);
    for (size_t p = 0; p < context; ++p) Write(p, &k[p * s.key_dim], &v[p * s.value_dim]);
    for (size_t t = 0; t < s.tokens; ++t) {
      q_rows.push_back(&q[t * s.group * s.key_dim]);
      positions.push_back(s.first_position + static_cast<int64_t>(t));
    }
  }

  static KvStrides Pairs(size_t block_tokens, size_t dim) {
    const size_t bytes = KvPlaneBlockBytes(KvDtype::kBf16, block_tokens, dim);
    return {bytes, 3 * bytes, 1};
  }

  void Write(size_t position, const float* k, const float* v) {
    const auto block = static_cast<size_t>(table[position / shape.block_tokens]);
    TableFor(Isa::kScalar)
        .kv_write({keys.data() + key_strides.At(block),
                   shape.latent ? nullptr : values.data() + value_strides.At(block), k, v,
                   position % shape.block_tokens, shape.block_tokens, shape.key_dim,
                   shape.value_dim, KvDtype::kBf16});
  }
  // Overwrites the slots of [begin, end).
  void Plant(size_t begin, size_t end, float value) {
    const std::vector<float> filler(kMaxKeyDim, value);
    for (size_t p = begin; p < end; ++p) Write(p, filler.data(), filler.data());
  }
  size_t slots() const { return blocks * shape.block_tokens; }

  // The whole context as one part, normalised: [rows][value_dim].
  std::vector<float> Run(void (*attention)(const AttentionArgs&)) const {
    const Shape& s = shape;
    const size_t rows = s.tokens * s.group;
    Guarded<float> out(rows * s.value_dim, 64), max(rows), sum(rows);
    attention({.q = q_rows.data(),
               .positions = positions.data(),
               .tokens = s.tokens,
               .group = s.group,
               .key_dim = s.key_dim,
               .value_dim = s.value_dim,
               .window = s.window,
               .context_begin = 0,
               .context_end = static_cast<int64_t>(context),
               .keys = keys.data(),
               .values = s.latent ? nullptr : values.data(),
               .key_strides = key_strides,
               .value_strides = value_strides,
               .block_table = table.data(),
               .block_tokens = s.block_tokens,
               .dtype = KvDtype::kBf16,
               .scale = 1 / std::sqrt(static_cast<float>(s.key_dim)),
               .soft_cap = s.soft_cap,
               .out = out.data(),
               .max = max.data(),
               .sum = sum.data()});
    std::vector<float> result(out.begin(), out.end());
    for (size_t i = 0; i < result.size(); ++i) result[i] /= sum[i / s.value_dim];
    return result;
  }
};

// Queries and keys are the same for both kernels; only weights are rounded, to bfloat16: by a
// factor of at most 1 + 2^-8 each, and no value is larger than 5. The rest, of float32 sums in
// another order over some hundred terms, is below 2^-14.
void ExpectAsScalar(const Scene& scene) {
  SCOPED_TRACE(::testing::Message() << scene.shape);
  const std::vector<float> want = scene.Run(TableFor(Isa::kScalar).attention);
  const std::vector<float> got = scene.Run(RunOnTiles);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 5 * (0x1p-8 + 0x1p-14))
        << "row " << i / scene.shape.value_dim << ", column " << i % scene.shape.value_dim;
  }
}

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want, size_t count) {
  EXPECT_EQ(std::memcmp(got.data(), want.data(), count * sizeof(float)), 0);
}

TEST(AttentionOnTiles, MatchesTheScalarKernel) {
  for (size_t group = 1; group <= 16; ++group) ExpectAsScalar(Scene({1, group, 64, 64, 32, 70}));
  for (size_t tokens : {1, 3, 4, 5, 8, 9, 16}) {  // rows of one tile, two, and up to four
    for (int64_t first : {0, 1, 31, 32, 127, 128, 300}) {
      ExpectAsScalar(Scene({tokens, 4, 64, 64, 32, first}));
    }
  }
  for (size_t block : {32, 64, 96, 128, 256}) {
    ExpectAsScalar(Scene({9, 7, 128, 128, block, 290}));
    ExpectAsScalar(Scene({3, 5, 96, 160, block, 70}));
    ExpectAsScalar(Scene({2, 1, 32, 256, block, 140}));
  }
}

TEST(AttentionOnTiles, SeesNothingBeforeTheWindow) {
  for (int64_t window : {1, 2, 3, 15, 17, 32, 33, 129, 300}) {
    for (int64_t first : {0, 31, 200, 261}) {
      ExpectAsScalar(Scene({7, 2, 64, 32, 32, first, window}));
      ExpectAsScalar(Scene({5, 4, 64, 64, 96, first, window}));
    }
  }
}

TEST(AttentionOnTiles, CapsScoresAndTakesLatentValues) {
  ExpectAsScalar(Scene({5, 3, 64, 64, 32, 140, kNoWindow, 2.0f}));
  ExpectAsScalar(Scene({1, 16, 576, 512, 32, 100, kNoWindow, 0, true}));
  ExpectAsScalar(Scene({4, 16, 96, 64, 64, 200, kNoWindow, 0, true}));
}

TEST(AttentionOnTiles, QueryTokensMayStandAnywhere) {
  Scene scene({4, 3, 64, 64, 32, 146});
  scene.positions = {149, 3, 140, 77};
  ExpectAsScalar(scene);
  scene.shape.window = 30;
  ExpectAsScalar(scene);
}

// Leftovers of other requests behind the context, and later tokens of the same chunk, reach no row
// that does not see them.
TEST(AttentionOnTiles, IgnoresUnseenTokens) {
  for (int64_t first : {0, 13, 31, 125, 250}) {
    SCOPED_TRACE(::testing::Message() << "first " << first);
    Scene scene({7, 3, 64, 64, 32, first});
    const std::vector<float> want = scene.Run(RunOnTiles);
    for (float leftover : {NAN, INFINITY, -INFINITY}) {
      scene.Plant(scene.context, scene.slots(), leftover);
      ExpectSameBits(scene.Run(RunOnTiles), want, want.size());
    }
    for (size_t token = 6; token > 0; --token) {
      scene.Plant(static_cast<size_t>(first) + token, scene.slots(),
                  token % 2 == 0 ? NAN : INFINITY);
      const std::vector<float> got = scene.Run(RunOnTiles);
      ExpectSameBits(got, want, token * 3 * 64);
      EXPECT_FALSE(std::isfinite(got[token * 3 * 64])) << "it must show in rows that see it";
    }
  }
}

TEST(AttentionOnTiles, IgnoresTokensBeforeTheWindow) {
  for (int64_t window : {1, 5, 14, 40}) {
    SCOPED_TRACE(::testing::Message() << "window " << window);
    Scene scene({4, 3, 64, 32, 32, 67, window});
    const std::vector<float> want = scene.Run(RunOnTiles);
    const size_t unseen = 67 - static_cast<size_t>(window) + 1;
    scene.Plant(0, unseen, NAN);
    ExpectSameBits(scene.Run(RunOnTiles), want, want.size());
    std::fill_n(scene.table.begin(), unseen / 32, -1);  // need not even have a number
    ExpectSameBits(scene.Run(RunOnTiles), want, want.size());
  }
}

TEST(AttentionOnTiles, LeaveRowsThatDoNotFillThemToVectors) {
  AttentionArgs args{};
  args.key_dim = args.value_dim = args.block_tokens = 32;
  args.dtype = KvDtype::kBf16;
  EXPECT_TRUE(impl::FillsTiles(args));
  for (size_t AttentionArgs::*size :
       {&AttentionArgs::key_dim, &AttentionArgs::value_dim, &AttentionArgs::block_tokens}) {
    AttentionArgs other = args;
    other.*size = 48;
    EXPECT_FALSE(impl::FillsTiles(other));
  }
  args.dtype = KvDtype::kF16;
  EXPECT_FALSE(impl::FillsTiles(args));
}

}  // namespace
}  // namespace pinion::kernels::testing
