#include <algorithm>
#include <cstring>

#include "kernels/impl/transpose.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels {
namespace {

// Prefetched ahead in each row: a block has 64 rows, more streams than the hardware follows.
constexpr size_t kPrefetchBytes = 256;

// One k-step of all rows, already converted to the destination's type. Going through it keeps both
// sides sequential: rows are read in order, and the block is written in order. 64 rows x 128 bytes
// of float32 are 8 KiB, a quarter of the smallest L1.
struct alignas(64) Tile {
  std::byte bytes[kBlockN][kPadK * sizeof(float)];
};

// Transposes 8 x 8 units of 2 bytes: dst[column][8 rows], columns dst_stride bytes apart.
void TransposeEight(std::byte* dst, size_t dst_stride, const std::byte* src, size_t src_stride) {
  __m128i rows[8], pairs[8], fours[8];
  for (size_t i = 0; i < 8; ++i) rows[i] = impl::LoadFour(src + i * src_stride);
  for (size_t i = 0; i < 4; ++i) {  // pairs[i]: columns 0 to 3 of rows 2i, 2i + 1; [i + 4]: 4 to 7
    pairs[i] = _mm_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
    pairs[i + 4] = _mm_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
  }
  for (size_t i = 0; i < 4; ++i) {  // fours[i]: columns 2i, 2i + 1 of rows 0 to 3; [i + 4]: 4 to 7
    const size_t from = i / 2 * 4;
    const bool high = i % 2 != 0;
    const __m128i a = pairs[from], b = pairs[from + 1], c = pairs[from + 2], d = pairs[from + 3];
    fours[i] = high ? _mm_unpackhi_epi32(a, b) : _mm_unpacklo_epi32(a, b);
    fours[i + 4] = high ? _mm_unpackhi_epi32(c, d) : _mm_unpacklo_epi32(c, d);
  }
  for (size_t i = 0; i < 4; ++i) {
    impl::StoreFour(dst + 2 * i * dst_stride, _mm_unpacklo_epi64(fours[i], fours[i + 4]));
    impl::StoreFour(dst + (2 * i + 1) * dst_stride, _mm_unpackhi_epi64(fours[i], fours[i + 4]));
  }
}

// dst[column][64 rows] = tile[row][column], in units of 2 bytes: float16 is not packed in pairs.
void TransposeHalves(std::byte* dst, const Tile& tile, size_t columns) {
  for (size_t column = 0; column < columns; column += 8) {
    for (size_t row = 0; row < kBlockN; row += 8) {
      TransposeEight(dst + (column * kBlockN + row) * 2, kBlockN * 2, &tile.bytes[row][column * 2],
                     sizeof(tile.bytes[0]));
    }
  }
}

}  // namespace

void Convert(std::byte* dst, Dtype dst_type, const std::byte* src, Dtype src_type, size_t n) {
  static const auto convert = TableFor(UsableIsas().back()).convert;
  if (n == 0) return;
  if (dst_type == src_type) {
    std::memcpy(dst, src, n * SizeOf(dst_type));
  } else {
    convert(dst, dst_type, src, src_type, n);
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
      for (size_t ahead = 0; ahead < kPadK * SizeOf(src_type); ahead += 64) {
        __builtin_prefetch(from + kPrefetchBytes + ahead, 0, 2);
      }
      Convert(tile.bytes[row], dst_type, from, src_type, live);
      if (live < kPadK) std::memset(tile.bytes[row] + live * size, 0, (kPadK - live) * size);
    }
    std::byte* to = dst + begin * kBlockN * size;
    if (dst_type == Dtype::kF16) {
      TransposeHalves(to, tile, kPadK);
    } else {
      impl::TransposeWords(to, tile.bytes[0], sizeof(tile.bytes[0]), kPadK * size / 4);
    }
  }
}

}  // namespace pinion::kernels
