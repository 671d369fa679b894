#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/impl/half.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels {
namespace {

// Packing goes through a tile of one k-step, already in the destination's type: 64 rows x 128 bytes
// of float32 are 8 KiB, a quarter of the smallest L1.
struct alignas(64) Tile {
  std::byte bytes[kBlockN][kPadK * sizeof(float)];
};

// Unaligned sources are legal (a safetensors file aligns nothing), hence memcpy.
template <typename T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <typename Dst, typename Src>
void ConvertAs(std::byte* dst, const std::byte* src, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    Dst value;
    impl::Narrow(impl::Widen(Load<Src>(src + i * sizeof(Src))), value);
    std::memcpy(dst + i * sizeof(Dst), &value, sizeof(Dst));
  }
}

template <typename Dst>
void ConvertTo(std::byte* dst, const std::byte* src, Dtype src_type, size_t n) {
  switch (src_type) {
    case Dtype::kF32:
      return ConvertAs<Dst, float>(dst, src, n);
    case Dtype::kBf16:
      return ConvertAs<Dst, Bf16>(dst, src, n);
    case Dtype::kF16:
      return ConvertAs<Dst, F16>(dst, src, n);
  }
}

__m128i LoadFour(const std::byte* p) { return _mm_load_si128(reinterpret_cast<const __m128i*>(p)); }

void StoreFour(std::byte* p, __m128i value) {
  _mm_store_si128(reinterpret_cast<__m128i*>(p), value);
}

// dst[column][64 rows] = tile[row][column], in units of 4 bytes: a float, or a pair of bfloat16.
void TransposeWords(std::byte* dst, const Tile& tile, size_t columns) {
  for (size_t column = 0; column < columns; column += 4) {
    std::byte* to = dst + column * kBlockN * 4;
    for (size_t row = 0; row < kBlockN; row += 4, to += 16) {
      const __m128i a = LoadFour(&tile.bytes[row][column * 4]);
      const __m128i b = LoadFour(&tile.bytes[row + 1][column * 4]);
      const __m128i c = LoadFour(&tile.bytes[row + 2][column * 4]);
      const __m128i d = LoadFour(&tile.bytes[row + 3][column * 4]);
      const __m128i ab_low = _mm_unpacklo_epi32(a, b), cd_low = _mm_unpacklo_epi32(c, d);
      const __m128i ab_high = _mm_unpackhi_epi32(a, b), cd_high = _mm_unpackhi_epi32(c, d);
      StoreFour(to, _mm_unpacklo_epi64(ab_low, cd_low));
      StoreFour(to + kBlockN * 4, _mm_unpackhi_epi64(ab_low, cd_low));
      StoreFour(to + kBlockN * 8, _mm_unpacklo_epi64(ab_high, cd_high));
      StoreFour(to + kBlockN * 12, _mm_unpackhi_epi64(ab_high, cd_high));
    }
  }
}

// dst[column][64 rows] = tile[row][column], in units of 2 bytes: float16 keeps no pairs.
void TransposeHalves(std::byte* dst, const Tile& tile, size_t columns) {
  for (size_t column = 0; column < columns; ++column) {
    for (size_t row = 0; row < kBlockN; ++row) {
      std::memcpy(dst + (column * kBlockN + row) * 2, &tile.bytes[row][column * 2], 2);
    }
  }
}

}  // namespace

void Convert(std::byte* dst, Dtype dst_type, const std::byte* src, Dtype src_type, size_t n) {
  if (n == 0) return;
  if (dst_type == src_type) {
    std::memcpy(dst, src, n * SizeOf(dst_type));
    return;
  }
  switch (dst_type) {
    case Dtype::kF32:
      return ConvertTo<float>(dst, src, src_type, n);
    case Dtype::kBf16:
      return ConvertTo<Bf16>(dst, src, src_type, n);
    case Dtype::kF16:
      return ConvertTo<F16>(dst, src, src_type, n);
  }
}

void PackBlock(std::byte* dst, Dtype dst_type, const std::byte* src, Dtype src_type,
               size_t src_stride, size_t rows, size_t k) {
  const size_t size = SizeOf(dst_type);
  Tile tile = {};
  for (size_t begin = 0; begin < k; begin += kPadK) {
    const size_t live = std::min(kPadK, k - begin);
    for (size_t row = 0; row < rows; ++row) {
      const std::byte* from = src + (row * src_stride + begin) * SizeOf(src_type);
      Convert(tile.bytes[row], dst_type, from, src_type, live);
      std::memset(tile.bytes[row] + live * size, 0, (kPadK - live) * size);
    }
    std::byte* to = dst + begin * kBlockN * size;
    if (dst_type == Dtype::kF16) {
      TransposeHalves(to, tile, kPadK);
    } else {
      TransposeWords(to, tile, kPadK * size / 4);
    }
  }
}

}  // namespace pinion::kernels
