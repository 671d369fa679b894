// Writing into the KV cache: where the bytes go, how they are rounded.

#include <algorithm>

#include "tests/kernels/kv_block.h"
#include "tests/kernels/kv_scheme.h"
#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

class KvWriteTest : public ::testing::TestWithParam<Isa> {
 protected:
  const Table& kernels_ = TableFor(GetParam());
};

struct WrittenToken {
  static constexpr size_t kKeyDim = 24, kValueDim = 40, kTokens = 32, kSlot = 13;
  Guarded<std::byte> keys, values;
  KvBlock key, value;

  WrittenToken(const Table& kernels, KvDtype dtype, const std::vector<float>& k,
               const std::vector<float>& v, bool latent = false)
      : keys(KvPlaneBlockBytes(dtype, kTokens, kKeyDim), 64),
        values(KvPlaneBlockBytes(dtype, kTokens, kValueDim), 64),
        key{keys.data(), dtype, kTokens, kKeyDim},
        value{values.data(), dtype, kTokens, kValueDim} {
    std::memset(keys.data(), 0, keys.size());
    std::memset(values.data(), 0, values.size());
    kernels.kv_write({keys.data(), latent ? nullptr : values.data(), k.data(),
                      latent ? nullptr : v.data(), kSlot, kTokens, kKeyDim, kValueDim, dtype});
  }
};

TEST_P(KvWriteTest, TouchesItsSlotAlone) {
  using W = WrittenToken;
  const std::vector<float> k = Normal(W::kKeyDim, 1), v = Normal(W::kValueDim, 2);
  for (KvDtype dtype : kKvDtypes) {
    const W written(kernels_, dtype, k, v);
    const W latent(kernels_, dtype, k, v, true);
    for (size_t slot = 0; slot < W::kTokens; ++slot) {
      if (slot == W::kSlot) continue;
      for (size_t d = 0; d < W::kKeyDim; ++d) ASSERT_EQ(written.key.Key(slot, d), 0) << slot;
      for (size_t d = 0; d < W::kValueDim; ++d) ASSERT_EQ(written.value.Value(slot, d), 0) << slot;
    }
    EXPECT_EQ(std::memcmp(written.keys.data(), latent.keys.data(), latent.keys.size()), 0);
    for (std::byte byte : std::vector(latent.values.data(), latent.values.data() + 64))
      EXPECT_EQ(byte, std::byte{0});
  }
}

// float32, bfloat16 and float16 exactly; bytes within half a step of what their scale gives.
TEST_P(KvWriteTest, RoundsToTheNearest) {
  using W = WrittenToken;
  for (unsigned seed = 1; seed < 40; ++seed) {
    const float size = std::ldexp(1.0f, static_cast<int>(seed) * 4 - 80);
    const std::vector<float> k = Normal(W::kKeyDim, seed, size), v = Normal(W::kValueDim, 2);
    for (Dtype dtype : kDtypes) {
      const W written(kernels_, KvDtypeOf(dtype), k, v);
      std::byte one[4];
      for (size_t d = 0; d < W::kKeyDim; ++d) {
        Set(one, dtype, 0, k[d]);
        ASSERT_EQ(written.key.Key(W::kSlot, d), Get(one, dtype, 0)) << Name(dtype);
      }
    }
    float largest = 0;
    for (float x : k) largest = std::max(largest, std::abs(x));
    for (KvDtype dtype : {KvDtype::kI8, KvDtype::kE5m2, KvDtype::kE4m3}) {
      SCOPED_TRACE(::testing::Message() << Name(dtype) << ", size " << size);
      const W written(kernels_, dtype, k, v);
      const float top = dtype == KvDtype::kI8 ? 127 : dtype == KvDtype::kE5m2 ? 57344 : 448;
      const float scale = written.key.Scale(W::kSlot);
      EXPECT_GE(scale * top, largest * (1 - 0x1p-23f));
      EXPECT_LE(scale * top, largest * (1 + 0x1p-7f));
      // Half a unit in the last place of the eight-bit floats: 2^-3 or 2^-4 of a normal number.
      const float relative = dtype == KvDtype::kE5m2 ? 0x1p-3f : 0x1p-4f;
      const float tiny = dtype == KvDtype::kE5m2 ? 0x1p-15f : 0x1p-7f;
      for (size_t d = 0; d < W::kKeyDim; ++d) {
        const float step =
            dtype == KvDtype::kI8 ? scale / 2 : std::max(relative * std::abs(k[d]), tiny * scale);
        ASSERT_NEAR(written.key.Key(W::kSlot, d), k[d], step * (1 + 0x1p-20f)) << d;
      }
    }
  }
}

// Bit by bit what the scheme says, on every ISA: random rows of any size, rows of ties, of zeros,
// of one large element beside many small ones, of elements below an eight-bit float's smallest.
TEST_P(KvWriteTest, HoldsTheValuesOfTheScheme) {
  using W = WrittenToken;
  for (unsigned seed = 1; seed < 300; ++seed) {
    const float size = std::ldexp(1.0f, static_cast<int>(seed % 50) - 25);
    std::vector<float> k = Normal(W::kKeyDim, seed, size), v = Normal(W::kValueDim, seed + 1000);
    if (seed % 3 == 0) {  // ties under int8, and to whole numbers under the others
      for (float& x : k) x = std::round(x / size * 40) / 2;
      k[0] = 127;
    }
    if (seed % 5 == 0) v[seed % W::kValueDim] = 1000;
    if (seed % 7 == 0) std::fill(v.begin(), v.end(), 0.0f);
    if (seed % 11 == 0)
      for (float& x : v) x = std::ldexp(x, -static_cast<int>(seed % 17) * (x > 0));
    for (KvDtype dtype : kKvDtypes) {
      SCOPED_TRACE(::testing::Message() << Name(dtype) << ", seed " << seed);
      const W written(kernels_, dtype, k, v);
      const CachedRow key = RoundAsCached(k.data(), k.size(), dtype);
      const CachedRow value = RoundAsCached(v.data(), v.size(), dtype);
      ASSERT_EQ(written.key.Scale(W::kSlot), key.scale);
      ASSERT_EQ(written.value.Scale(W::kSlot), value.scale);
      for (size_t d = 0; d < k.size(); ++d)
        ASSERT_EQ(written.key.Key(W::kSlot, d), key.values[d]) << d << ", " << k[d];
      for (size_t d = 0; d < v.size(); ++d)
        ASSERT_EQ(written.value.Value(W::kSlot, d), value.values[d]) << d << ", " << v[d];
    }
  }
}

TEST_P(KvWriteTest, GivesTheSameBytesOnEveryIsa) {
  using W = WrittenToken;
  for (unsigned seed = 1; seed < 200; ++seed) {
    std::vector<float> k = Normal(W::kKeyDim, seed), v = Normal(W::kValueDim, seed + 1000);
    if (seed % 3 == 0) {  // ties: multiples of half a step
      for (float& x : k) x = std::round(x * 40) / 2;
      k[0] = 127;
    }
    if (seed % 7 == 0) std::fill(v.begin(), v.end(), 0.0f);
    for (KvDtype dtype : kKvDtypes) {
      const W got(kernels_, dtype, k, v), want(TableFor(Isa::kScalar), dtype, k, v);
      ASSERT_EQ(std::memcmp(got.keys.data(), want.keys.data(), want.keys.size()), 0) << Name(dtype);
      ASSERT_EQ(std::memcmp(got.values.data(), want.values.data(), want.values.size()), 0);
    }
  }
}

// Numbers that every way of rounding treats in its own way: ties, the ends of each type's range,
// subnormals, zeros, infinities, NaN with and without a payload.
std::vector<float> Edges() {
  std::vector<float> edges = {
      0x1.01p0f,   0x1.03p0f,    0x1.002p0f, 0x1.006p0f,      65504,      65519.9f,  65520,
      0x1p-14f,    0x1.ffcp-15f, 0x1.8p-24f, 0x1p-25f,        0x1.8p-25f, 0x1p-126f, 0x1p-127f,
      0x1.8p-130f, 0x1.01p-127f, 0x1p-149f,  0x1.fffffep127f, 0,          INFINITY};
  for (const uint32_t bits : {0x7fc00000u, 0x7f800001u, 0x7fa0beefu, 0x7fffffffu}) {
    float nan;
    std::memcpy(&nan, &bits, sizeof(nan));
    edges.push_back(nan);
  }
  for (size_t i = 0, count = edges.size(); i < count; ++i) edges.push_back(-edges[i]);
  return edges;
}

// A row that ends at an unmapped page; every third one has some of the numbers above.
void FillRow(Guarded<float>& row, unsigned seed) {
  static const std::vector<float> edges = Edges();
  const std::vector<float> normal =
      Normal(row.size(), seed % 97, std::ldexp(1.0f, static_cast<int>(seed % 40) - 20));
  std::copy(normal.begin(), normal.end(), row.begin());
  if (seed % 3 != 0) return;
  for (size_t i = seed % 5; i < row.size(); i += 5) row[i] = edges[(seed + i) % edges.size()];
}

struct BlockShape {
  size_t key_dim, value_dim, tokens;
  bool latent = false;
};

// A block of keys and one of values, written by one path.
struct Written {
  Guarded<std::byte> keys, values;
  Written(const BlockShape& shape, KvDtype dtype)
      : keys(KvPlaneBlockBytes(dtype, shape.tokens, shape.key_dim), 64),
        values(KvPlaneBlockBytes(dtype, shape.tokens, shape.value_dim), 64) {
    std::memset(keys.data(), 0xa5, keys.size());
    std::memset(values.data(), 0xa5, values.size());
  }
  bool operator==(const Written& other) const {
    return std::memcmp(keys.data(), other.keys.data(), keys.size()) == 0 &&
           std::memcmp(values.data(), other.values.data(), values.size()) == 0;
  }
};

void ExpectTheScalarBytes(const Table& kernels, const BlockShape& shape, KvDtype dtype) {
  SCOPED_TRACE(::testing::Message() << Name(dtype) << ", keys " << shape.key_dim << ", values "
                                    << shape.value_dim << ", block " << shape.tokens);
  Written got(shape, dtype), want(shape, dtype);
  Guarded<float> k(shape.key_dim), v(shape.value_dim);
  std::vector<size_t> slots(shape.tokens);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = i;
  std::shuffle(slots.begin(), slots.end(), std::mt19937(3));
  for (const size_t slot : slots) {
    FillRow(k, static_cast<unsigned>(slot + shape.key_dim));
    FillRow(v, static_cast<unsigned>(2 * slot + shape.value_dim));
    const auto write = [&](const Table& table, Written& to) {
      table.kv_write({to.keys.data(), shape.latent ? nullptr : to.values.data(), k.data(), v.data(),
                      slot, shape.tokens, shape.key_dim, shape.value_dim, dtype});
    };
    write(kernels, got);
    write(TableFor(Isa::kScalar), want);
    ASSERT_TRUE(got == want) << "slot " << slot;
  }
}

// Neighbouring tokens in one call, at any slot and of any number: the bytes are those of one call
// for each of them, and all others stay as they were.
void ExpectTheBytesOfSingleTokens(const Table& kernels, const BlockShape& shape, KvDtype dtype) {
  SCOPED_TRACE(::testing::Message() << Name(dtype) << ", keys " << shape.key_dim << ", values "
                                    << shape.value_dim << ", block " << shape.tokens);
  const size_t stride = shape.key_dim + shape.value_dim + 3;
  for (size_t slot = 0; slot < shape.tokens; slot += slot < 6 ? 1 : 5) {
    const size_t room = shape.tokens - slot;
    for (size_t tokens = 1; tokens <= room; tokens += tokens < 10 ? 1 : 4) {
      Written got(shape, dtype), want(shape, dtype);
      Guarded<float> k((tokens - 1) * stride + shape.key_dim);
      Guarded<float> v((tokens - 1) * stride + shape.value_dim);
      FillRow(k, static_cast<unsigned>(slot + tokens));
      FillRow(v, static_cast<unsigned>(2 * slot + tokens));
      const auto write = [&](Written& to, size_t first, size_t count) {
        kernels.kv_write({.keys = to.keys.data(),
                          .values = shape.latent ? nullptr : to.values.data(),
                          .k = k.data() + first * stride,
                          .v = shape.latent ? nullptr : v.data() + first * stride,
                          .slot = slot + first,
                          .block_tokens = shape.tokens,
                          .key_dim = shape.key_dim,
                          .value_dim = shape.value_dim,
                          .dtype = dtype,
                          .tokens = count,
                          .stride = stride});
      };
      write(got, 0, tokens);
      for (size_t token = 0; token < tokens; ++token) write(want, token, 1);
      ASSERT_TRUE(got == want) << tokens << " tokens from slot " << slot;
    }
  }
}

TEST_P(KvWriteTest, TokensOfOneCallAreThoseOfSingleOnes) {
  for (const KvDtype dtype : kKvDtypes) {
    for (const size_t dim : {8, 24, 40, 64, 128})
      ExpectTheBytesOfSingleTokens(kernels_, {dim, dim, 16}, dtype);
    ExpectTheBytesOfSingleTokens(kernels_, {72, 136, 32}, dtype);
    ExpectTheBytesOfSingleTokens(kernels_, {kMaxKeyDim, kMaxValueDim, 16, true}, dtype);
  }
}

// Slots in any order, and after each of them the whole block: what is not written stays as it was.
TEST_P(KvWriteTest, FillsBlocksAsTheScalarPathDoes) {
  for (const KvDtype dtype : kKvDtypes) {
    for (const size_t dim : {8, 16, 24, 32, 40, 64, 72, 96, 128, 136, 256})
      ExpectTheScalarBytes(kernels_, {dim, dim, 16}, dtype);
    for (const size_t tokens : {32, 48, 64, 128})
      ExpectTheScalarBytes(kernels_, {64, 64, tokens}, dtype);
    ExpectTheScalarBytes(kernels_, {24, 200, 32}, dtype);
    ExpectTheScalarBytes(kernels_, {192, 128, 64}, dtype);
    ExpectTheScalarBytes(kernels_, {kMaxKeyDim, kMaxValueDim, 16}, dtype);
    ExpectTheScalarBytes(kernels_, {kMaxKeyDim, kMaxValueDim, 32, true}, dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, KvWriteTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
