#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

// The index of w[n][k] in a packed block, by the formula in kernels.h.
size_t PackedIndex(Dtype dtype, size_t n, size_t k) {
  const size_t step = dtype == Dtype::kBf16 ? 32 : 16;
  const size_t pairs = dtype == Dtype::kBf16 ? 2 : 1;
  return ((k / step * (step / pairs) + k % step / pairs) * 64 + n) * pairs + k % pairs;
}

struct Case {
  size_t rows, k, stride;
};

void CheckPack(Dtype dst_type, Dtype src_type, const Case& c) {
  SCOPED_TRACE(::testing::Message() << Name(src_type) << " to " << Name(dst_type) << ", rows "
                                    << c.rows << ", k " << c.k << ", stride " << c.stride);
  const size_t src_count = (c.rows - 1) * c.stride + c.k;
  Guarded<std::byte> src(src_count * SizeOf(src_type));
  const std::vector<float> values = Normal(src_count, 7);
  for (size_t i = 0; i < src_count; ++i) Set(src.data(), src_type, i, values[i]);
  Guarded<std::byte> packed(PackedBlockBytes(dst_type, c.k), 64);
  PackBlock(packed.data(), dst_type, src.data(), src_type, c.stride, c.rows, c.k);

  Guarded<std::byte> want(SizeOf(dst_type));
  for (size_t n = 0; n < 64; ++n) {
    for (size_t k = 0; k < RoundUp(c.k, 32); ++k) {
      const bool is_padding = n >= c.rows || k >= c.k;
      Set(want.data(), dst_type, 0, is_padding ? 0 : Get(src.data(), src_type, n * c.stride + k));
      ASSERT_EQ(Get(packed.data(), dst_type, PackedIndex(dst_type, n, k)),
                Get(want.data(), dst_type, 0))
          << "n " << n << ", k " << k;
    }
  }
}

TEST(Pack, FollowsTheLayoutAndPadsWithZeros) {
  for (Dtype dst_type : kDtypes) {
    for (Dtype src_type : kDtypes) {
      for (const Case& c : {Case{64, 64, 64}, Case{64, 96, 101}, Case{1, 1, 1}, Case{63, 33, 40},
                            Case{5, 31, 31}}) {
        CheckPack(dst_type, src_type, c);
      }
    }
  }
}

// Tensors in a mapped file start anywhere.
TEST(Pack, ReadsUnalignedSources) {
  Guarded<std::byte> src(1 + 4 * 33), packed(PackedBlockBytes(Dtype::kF32, 33), 64);
  for (size_t i = 0; i < 33; ++i) Set(src.data() + 1, Dtype::kF32, i, static_cast<float>(i));
  PackBlock(packed.data(), Dtype::kF32, src.data() + 1, Dtype::kF32, 33, 1, 33);
  for (size_t k = 0; k < 33; ++k) EXPECT_EQ(Get(packed.data(), Dtype::kF32, k * 64), k);
}

TEST(Convert, RoundsOnceBetweenAnyTwoTypes) {
  for (size_t n : {0, 1, 7, 16, 33}) {
    for (Dtype dst_type : kDtypes) {
      for (Dtype src_type : kDtypes) {
        Guarded<std::byte> src(n * SizeOf(src_type)), dst(n * SizeOf(dst_type)), one(4);
        const std::vector<float> values = Normal(n, 9, 100);
        for (size_t i = 0; i < n; ++i) Set(src.data(), src_type, i, values[i]);
        Convert(dst.data(), dst_type, src.data(), src_type, n);
        for (size_t i = 0; i < n; ++i) {
          Set(one.data(), dst_type, 0, Get(src.data(), src_type, i));
          EXPECT_EQ(Get(dst.data(), dst_type, i), Get(one.data(), dst_type, 0));
        }
      }
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::testing
