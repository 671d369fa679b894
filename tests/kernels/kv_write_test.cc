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
TEST_P(KvWriteTest, HoldsWhatTheSchemeSays) {
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

INSTANTIATE_TEST_SUITE_P(AllIsas, KvWriteTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
