#include "kernels/integer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/impl/cpuid.h"
#include "kernels/impl/integer_tables.h"

namespace pinion::kernels {
namespace {

// One output's column of a group's codes within the block; `columns` beyond `live` become zero.
void PackCodes(std::byte* dst, const IntLayout& layout, size_t output, const int8_t* codes,
               size_t live, size_t columns) {
  const size_t step = layout.bits == 8 ? 4 : 8;
  for (size_t k = 0; k < columns; k += step) {
    uint32_t word = 0;
    for (size_t i = 0; i < step; ++i) {
      const int code = k + i < live ? codes[k + i] - layout.lowest : 0;
      // Nibbles: 0 to 3 in the low halves of the bytes, 4 to 7 in the high ones.
      const size_t shift = layout.bits == 8 ? 8 * i : 8 * (i % 4) + 4 * (i / 4);
      word |= static_cast<uint32_t>(code) << shift;
    }
    std::memcpy(dst + (k / step * kBlockN + output) * sizeof(word), &word, sizeof(word));
  }
}

// What an output's float16s are relative to: the power of two above the largest magnitude among
// its scales and offsets, by which division is exact.
float OutputScale(const IntLayout& layout, const float* scales, const float* offsets) {
  if (layout.whole_rows()) return scales[0];
  float largest = 0;
  for (size_t group = 0; group < layout.groups(); ++group) {
    largest = std::max(largest, std::abs(scales[group]));
    if (layout.has_offsets) largest = std::max(largest, std::abs(offsets[group]) / 16);
  }
  int exponent = 0;
  std::frexp(largest, &exponent);
  return largest > 0 ? std::ldexp(1.0f, exponent) : 1;
}

template <typename T>
void Put(std::byte* dst, size_t index, T value) {
  std::memcpy(dst + index * sizeof(T), &value, sizeof(T));
}

void PackOutput(std::byte* dst, const IntLayout& layout, size_t output, const int8_t* codes,
                const float* scales, const float* offsets) {
  const float own = OutputScale(layout, scales, offsets);
  const size_t width = layout.whole_rows() ? layout.k_padded() : layout.group;
  for (size_t group = 0; group < layout.groups(); ++group) {
    std::byte* at = dst + group * layout.group_bytes();
    const size_t begin = group * width, live = std::min(width, layout.k - begin);
    PackCodes(at, layout, output, codes + begin, live, width);
    if (layout.whole_rows()) continue;
    at += layout.code_bytes(width);
    Put(at, output, ToF16(scales[group] / own));
    // Codes are stored less their lowest, which the offset takes up.
    const float offset = offsets[group] + scales[group] * static_cast<float>(layout.lowest);
    if (layout.has_offsets) Put(at, kBlockN + output, ToF16(offset / own));
  }
  std::byte* tail = dst + layout.groups() * layout.group_bytes();
  int32_t sum = 0;
  for (size_t k = 0; k < layout.k; ++k) sum += codes[k];
  Put(tail, output, own);
  Put(tail, kBlockN + output, layout.whole_rows() ? sum : 0);
}

bool HasVnni() { return __builtin_cpu_supports("avx512vnni"); }

// Intel SDM volume 2, CPUID leaf 7: AMX-INT8. What the tiles need besides is usable where kAmx is.
bool HasAmxInt8() { return impl::Cpuid(7, 0).edx >> 25 & 1; }

}  // namespace

void PackIntBlock(std::byte* dst, const IntLayout& layout, const int8_t* codes, const float* scales,
                  const float* offsets, size_t rows) {
  std::memset(dst, 0, layout.block_bytes());
  for (size_t row = 0; row < rows; ++row)
    PackOutput(dst, layout, row, codes + row * layout.k, scales + row * layout.groups(),
               offsets + row * layout.groups());
}

const IntTable& IntTableFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return impl::kIntScalar;
    case Isa::kAvx2:
      return impl::kIntAvx2;
    case Isa::kAvx2Vnni:
      return impl::kIntAvx2Vnni;
    case Isa::kAvx512:
      return impl::kIntAvx512;
    case Isa::kAvx512Vnni:
      return impl::kIntAvx512Vnni;
    case Isa::kAvx512Bf16:
      return HasVnni() ? impl::kIntAvx512Vnni : impl::kIntAvx512;
    case Isa::kAmx:
      return HasVnni() && HasAmxInt8() ? impl::kIntAmx : IntTableFor(Isa::kAvx512Bf16);
  }
  __builtin_unreachable();
}

}  // namespace pinion::kernels
