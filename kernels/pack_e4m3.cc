// Bytes of e4m3 into packed blocks (integer.h, e4m3.h).

#include <emmintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/impl/e4m3_tables.h"

namespace pinion::kernels {
namespace {

// Columns packed at a time, and outputs that lie side by side in a block.
constexpr size_t kColumns = 16, kOutputs = 4;

// Interleaves words (two columns each) of four outputs: dst[i * kE4m3StepBytes] for word i.
void PutWords(const __m128i (&rows)[kOutputs], std::byte* dst) {
  const auto put = [&](size_t word, __m128i first, __m128i second) {
    const __m128i low = _mm_unpacklo_epi32(first, second);
    const __m128i high = _mm_unpackhi_epi32(first, second);
    for (const __m128i both : {low, high}) {
      auto* at = reinterpret_cast<__m128i*>(dst + word * impl::kE4m3StepBytes);
      _mm_storel_epi64(at, both);
      at = reinterpret_cast<__m128i*>(dst + (word + 1) * impl::kE4m3StepBytes);
      _mm_storel_epi64(at, _mm_unpackhi_epi64(both, both));
      word += 2;
    }
  };
  put(0, _mm_unpacklo_epi16(rows[0], rows[1]), _mm_unpacklo_epi16(rows[2], rows[3]));
  put(4, _mm_unpackhi_epi16(rows[0], rows[1]), _mm_unpackhi_epi16(rows[2], rows[3]));
}

// Sixteen columns from `src` on, of which `live` exist; zeros behind them.
__m128i LoadColumns(const int8_t* src, size_t live) {
  if (live >= kColumns) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(src));
  int8_t padded[kColumns] = {};
  std::memcpy(padded, src, live);
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(padded));
}

// One group of columns, `live` of `width`, of all outputs. Sets is_nan of outputs that have one.
void PackGroup(const IntLayout& layout, const int8_t* codes, size_t rows, size_t live, size_t width,
               std::byte* dst, bool* is_nan) {
  const __m128i top = _mm_set1_epi8(0x7f);
  for (size_t output = 0; output < kBlockN; output += kOutputs) {
    __m128i nans[kOutputs] = {};
    for (size_t k = 0; k < width; k += kColumns) {
      __m128i bytes[kOutputs] = {};
      for (size_t i = 0; i < kOutputs && output + i < rows && k < live; ++i) {
        bytes[i] = LoadColumns(codes + (output + i) * layout.k + k, live - k);
        nans[i] = _mm_or_si128(nans[i], _mm_cmpeq_epi8(_mm_and_si128(bytes[i], top), top));
      }
      PutWords(bytes, dst + k / 2 * impl::kE4m3StepBytes + impl::E4m3Place(output));
    }
    for (size_t i = 0; i < kOutputs; ++i)
      is_nan[output + i] = is_nan[output + i] || _mm_movemask_epi8(nans[i]) != 0;
  }
}

}  // namespace

namespace impl {

void PackE4m3Block(std::byte* dst, const IntLayout& layout, const int8_t* codes,
                   const float* scales, size_t rows) {
  const size_t width = layout.whole_rows() ? layout.k_padded() : layout.group;
  for (size_t group = 0; group < layout.groups(); ++group) {
    std::byte* at = dst + group * layout.group_bytes();
    bool is_nan[kBlockN] = {};
    PackGroup(layout, codes + group * width, rows, std::min(width, layout.k - group * width), width,
              at, is_nan);
    float of_outputs[kBlockN] = {};
    for (size_t row = 0; row < rows; ++row)
      of_outputs[row] = is_nan[row] ? std::numeric_limits<float>::quiet_NaN()
                                    : scales[row * layout.groups() + group];
    std::memcpy(at + layout.code_bytes(width), of_outputs, sizeof(of_outputs));
  }
  // Of whole rows, the scales just written are the block's tail.
  std::byte* tail = dst + layout.groups() * layout.group_bytes();
  if (!layout.whole_rows()) std::memset(tail, 0, kBlockN * sizeof(float));
  std::memset(tail + kBlockN * sizeof(float), 0, kBlockN * sizeof(int32_t));
}

}  // namespace impl

}  // namespace pinion::kernels
