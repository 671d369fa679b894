#include "kernels/integer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/impl/cpuid.h"
#include "kernels/impl/integer_tables.h"

namespace pinion::kernels {
namespace {

// Columns at a time: what all outputs have of them stays in L1.
constexpr size_t kPackColumns = 64;

// `codes` less the lowest as unsigned bytes, zeros from `live` on.
void StoreBytes(const int8_t* codes, size_t live, int lowest, uint8_t (&bytes)[kPackColumns]) {
  int8_t padded[kPackColumns];
  const bool whole = live >= kPackColumns;
  if (!whole) {
    std::memset(padded, lowest, sizeof(padded));
    std::memcpy(padded, codes, live);
  }
  const int8_t* src = whole ? codes : padded;
  for (size_t i = 0; i < kPackColumns; ++i) bytes[i] = static_cast<uint8_t>(src[i] - lowest);
}

// kBits 4: columns 0 to 3 in the low halves of a word's bytes, 4 to 7 in the high ones.
template <int kBits>
void StoreWords(const uint8_t (&bytes)[kPackColumns], size_t columns, std::byte* dst) {
  constexpr size_t kStep = 32 / kBits;
  for (size_t k = 0; k < columns; k += kStep, dst += kBlockN * sizeof(uint32_t)) {
    uint32_t word, high;
    std::memcpy(&word, bytes + k, sizeof(word));
    if constexpr (kBits == 4) {
      std::memcpy(&high, bytes + k + 4, sizeof(high));
      word |= high << 4;
    }
    std::memcpy(dst, &word, sizeof(word));
  }
}

// A group's codes of `rows` outputs; columns from `live` up to `width` become zero.
template <int kBits>
void PackCodes(std::byte* dst, const IntLayout& layout, const int8_t* codes, size_t rows,
               size_t live, size_t width) {
  uint8_t bytes[kPackColumns];
  for (size_t k = 0; k < width; k += kPackColumns) {
    for (size_t row = 0; row < rows; ++row) {
      const size_t first = std::min(k, live);
      StoreBytes(codes + row * layout.k + first, live - first, layout.lowest, bytes);
      StoreWords<kBits>(bytes, std::min(kPackColumns, width - k),
                        dst + layout.code_bytes(k) + row * sizeof(uint32_t));
    }
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

// What an output has besides its codes.
void PackScales(std::byte* dst, const IntLayout& layout, size_t output, const int8_t* codes,
                const float* scales, const float* offsets) {
  const float own = OutputScale(layout, scales, offsets);
  std::byte* tail = dst + layout.groups() * layout.group_bytes();
  int32_t sum = 0;
  if (layout.whole_rows())
    for (size_t k = 0; k < layout.k; ++k) sum += codes[k];
  Put(tail, output, own);
  Put(tail, kBlockN + output, sum);
  if (layout.whole_rows()) return;
  for (size_t group = 0; group < layout.groups(); ++group) {
    std::byte* at = dst + group * layout.group_bytes() + layout.code_bytes(layout.group);
    Put(at, output, ToF16(scales[group] / own));
    // Codes are stored less their lowest, which the offset takes up.
    const float offset = offsets[group] + scales[group] * static_cast<float>(layout.lowest);
    if (layout.has_offsets) Put(at, kBlockN + output, ToF16(offset / own));
  }
}

bool HasVnni() { return __builtin_cpu_supports("avx512vnni"); }

// Intel SDM volume 2, CPUID leaf 7: AMX-INT8. What the tiles need besides is usable where kAmx is.
bool HasAmxInt8() { return impl::Cpuid(7, 0).edx >> 25 & 1; }

}  // namespace

void PackIntBlock(std::byte* dst, const IntLayout& layout, const int8_t* codes, const float* scales,
                  const float* offsets, size_t rows) {
  if (rows < kBlockN) std::memset(dst, 0, layout.block_bytes());
  const auto pack = layout.bits == 4 ? PackCodes<4> : PackCodes<8>;
  const size_t width = layout.whole_rows() ? layout.k_padded() : layout.group;
  for (size_t group = 0; group < layout.groups(); ++group)
    pack(dst + group * layout.group_bytes(), layout, codes + group * width, rows,
         std::min(width, layout.k - group * width), width);
  for (size_t row = 0; row < rows; ++row)
    PackScales(dst, layout, row, codes + row * layout.k, scales + row * layout.groups(),
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
