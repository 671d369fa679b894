// The reference for the integer products, in plain C++.

#include <cmath>
#include <cstring>

#include "kernels/impl/e2m1.inl.h"
#include "kernels/impl/half.inl.h"
#include "kernels/impl/integer_tables.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

template <typename T>
T Get(const std::byte* src, size_t index) {
  T value;
  std::memcpy(&value, src + index * sizeof(T), sizeof(T));
  return value;
}

float Activation(const RoundArgs& args, size_t column) {
  const size_t i = args.order == nullptr ? column : args.order[column];
  if (i == kNoColumn) return 0;
  return args.x_type == Dtype::kF32 ? static_cast<const float*>(args.x)[i]
                                    : Widen(static_cast<const Bf16*>(args.x)[i]);
}

// The largest magnitude that is rounded; `largest`: of all.
float RoundedRange(const IntLayout& layout, const RoundArgs& args, float largest) {
  float range = largest;
  if (layout.outliers == 0 || largest < kLeastOutlier) return range;
  for (int steps = kFewestOutlierSteps; steps <= kMostOutlierSteps; ++steps) {
    const float limit = largest / static_cast<float>(1 << steps);
    size_t above = 0;
    for (size_t i = 0; i < layout.k; ++i) above += std::abs(Activation(args, i)) > limit ? 1 : 0;
    if (above > layout.outliers) break;
    range = limit;
  }
  return range;
}

// Moves the values above `range` out of the rounded row.
void PutOutliersApart(const IntLayout& layout, const RoundArgs& args, float range) {
  uint32_t count = 0;
  std::byte* at = args.dst + layout.outliers_at();
  for (size_t i = 0; i < layout.k; ++i) {
    const float value = Activation(args, i);
    if (!(std::abs(value) > range)) continue;
    const Outlier outlier{static_cast<uint32_t>(i), value};
    std::memcpy(at + sizeof(count) + count++ * sizeof(outlier), &outlier, sizeof(outlier));
    args.dst[i] = std::byte{0};
  }
  std::memcpy(at, &count, sizeof(count));
}

void Round(const IntLayout& layout, const RoundArgs& args) {
  Rounding rounding = args.rounding;
  float largest = 0, range = 0;
  if (rounding.scale == 0) {
    for (size_t i = 0; i < layout.k; ++i) {
      const float magnitude = std::abs(Activation(args, i));
      if (magnitude > largest) largest = magnitude;
    }
    range = RoundedRange(layout, args, largest);
    rounding = {largest > 0 ? range / 127 : 1, 0};
  }
  std::memset(args.dst, 0, layout.columns());
  auto* dst = reinterpret_cast<int8_t*>(args.dst);
  bool finite = true;
  for (size_t i = 0; i < layout.k; ++i) {
    const float quotient = Activation(args, i) / rounding.scale;
    finite = finite && std::isfinite(quotient);
    const float rounded = std::nearbyint(quotient) + static_cast<float>(rounding.zero_point);
    dst[i] = static_cast<int8_t>(!(rounded > -128) ? -128 : rounded > 127 ? 127 : rounded);
  }
  if (!finite) rounding.scale = std::nanf("");
  if (layout.outliers > 0) {
    std::memset(args.dst + layout.outliers_at(), 0, sizeof(uint32_t));
    if (range < largest) PutOutliersApart(layout, args, range);
  }
  std::byte* tail = args.dst + layout.columns();
  std::memcpy(tail, &rounding, sizeof(rounding));
  const size_t width = layout.whole_rows() ? layout.columns() : layout.group;
  for (size_t group = 0; group < layout.groups(); ++group) {
    int32_t sum = 0;
    for (size_t i = 0; i < width; ++i) sum += dst[group * width + i];
    std::memcpy(tail + sizeof(rounding) + group * sizeof(sum), &sum, sizeof(sum));
  }
}

// Codes of 4 bits: eight columns share four bytes, the first four in the low nibbles.
int Code(const IntLayout& layout, const std::byte* codes, size_t output, size_t k) {
  const size_t step = layout.bits == 8 ? 4 : 8, place = k % step;
  const auto byte = Get<uint8_t>(codes, (k / step * kBlockN + output) * 4 + place % 4);
  if (layout.bits == 8) return byte;
  const int nibble = place < 4 ? byte & 15 : byte >> 4;
  return layout.e2m1() ? kE2M1Bytes[nibble] : nibble;
}

// Of an output in a group, relative to the output's own.
float Scale(const IntLayout& layout, const std::byte* scales, size_t output) {
  if (!layout.e2m1()) return Widen(Get<F16>(scales, output));
  if (layout.scale_type == ScaleType::kE4m3) {
    const auto byte = Get<uint8_t>(scales, output);
    return Widen(F16{static_cast<uint16_t>((byte & 0x80) << 8 | (byte & 0x7f) << 7)});
  }
  const uint32_t bits = uint32_t{Get<uint8_t>(scales, output)} << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return power;
}

float Weight(const IntLayout& layout, const std::byte* block, size_t output, size_t k) {
  const std::byte* tail = block + layout.groups() * layout.group_bytes();
  const float own = Get<float>(tail, output);
  const size_t width = layout.whole_rows() ? layout.columns() : layout.group;
  const std::byte* codes = block + k / width * layout.group_bytes();
  const auto code = static_cast<float>(Code(layout, codes, output, k % width));
  const auto lowest = static_cast<float>(layout.lowest);
  if (layout.whole_rows()) return std::fma(code, own, own * lowest);
  const std::byte* scales = codes + layout.code_bytes(width);
  const float scale = Scale(layout, scales, output) * own;
  if (layout.e2m1()) return (code + lowest) * scale;
  const float offset =
      layout.has_offsets ? Widen(Get<F16>(scales, kBlockN + output)) * own : scale * lowest;
  return std::fma(code, scale, offset);
}

// `total` and the products of one output with the row's outliers.
float WithOutliers(const IntLayout& layout, const std::byte* x, const std::byte* block,
                   size_t output, float total) {
  if (layout.outliers == 0) return total;
  const std::byte* at = x + layout.outliers_at();
  const auto count = Get<uint32_t>(at, 0);
  for (uint32_t i = 0; i < count; ++i) {
    const auto outlier = Get<Outlier>(at + sizeof(count), i);
    total = std::fma(Weight(layout, block, output, outlier.column), outlier.value, total);
  }
  return total;
}

float Product(const IntLayout& layout, const std::byte* x, const std::byte* block, size_t output) {
  const auto rounding = Get<Rounding>(x + layout.columns(), 0);
  const std::byte* tail = block + layout.groups() * layout.group_bytes();
  const size_t width = layout.whole_rows() ? layout.columns() : layout.group;
  float total = 0;
  for (size_t group = 0; group < layout.groups(); ++group) {
    const std::byte* codes = block + group * layout.group_bytes();
    int32_t sum = 0;
    for (size_t k = 0; k < width; ++k)
      sum += Code(layout, codes, output, k) * Get<int8_t>(x, group * width + k);
    const auto x_sum = Get<int32_t>(x + layout.columns() + sizeof(rounding), group);
    if (!layout.has_offsets) sum += layout.lowest * x_sum;
    if (layout.whole_rows()) {
      sum -= Get<int32_t>(tail, kBlockN + output) * rounding.zero_point;
      const float whole = static_cast<float>(sum) * Get<float>(tail, output) * rounding.scale;
      return WithOutliers(layout, x, block, output, whole);
    }
    const std::byte* scales = codes + layout.code_bytes(width);
    total += static_cast<float>(sum) * Scale(layout, scales, output);
    if (layout.has_offsets)
      total += Widen(Get<F16>(scales, kBlockN + output)) * static_cast<float>(x_sum);
  }
  return WithOutliers(layout, x, block, output, total * Get<float>(tail, output) * rounding.scale);
}

void IntGemm(const IntLayout& layout, const IntGemmArgs& args) {
  for (size_t row = 0; row < args.rows; ++row)
    for (size_t n = 0; n < args.blocks * kBlockN; ++n)
      args.y[row * args.ldy + n] =
          Product(layout, args.x + row * layout.row_bytes(),
                  args.w + n / kBlockN * layout.block_bytes(), n % kBlockN);
}

void Dequantise(const IntLayout& layout, const std::byte* block, Dtype dst_type, std::byte* dst) {
  const size_t pair = dst_type == Dtype::kBf16 ? 2 : 1;  // columns side by side
  for (size_t k = 0; k < layout.k_padded(); ++k)
    for (size_t output = 0; output < kBlockN; ++output) {
      const float weight = k < layout.columns() ? Weight(layout, block, output, k) : 0;
      const size_t at = (k / pair * kBlockN + output) * pair + k % pair;
      const uint16_t bits =
          dst_type == Dtype::kBf16 ? NarrowBf16(weight).bits : NarrowF16(weight).bits;
      std::memcpy(dst + at * sizeof(bits), &bits, sizeof(bits));
    }
}

}  // namespace

const IntTable kIntScalar = {"scalar", Round, IntGemm, Dequantise};

}  // namespace pinion::kernels::impl
