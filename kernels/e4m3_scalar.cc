// The reference for products with weights in e4m3, in plain C++.

#include <cstring>

#include "kernels/impl/e4m3_round.inl.h"
#include "kernels/impl/e4m3_tables.h"
#include "kernels/impl/half.inl.h"

namespace pinion::kernels::impl {
namespace {

float At(const E4m3GemmArgs& args, size_t index) {
  return args.x_type == Dtype::kF32 ? static_cast<const float*>(args.x)[index]
                                    : Widen(static_cast<const Bf16*>(args.x)[index]);
}

float FloatAt(const std::byte* src, size_t index) {
  float value;
  std::memcpy(&value, src + index * sizeof(value), sizeof(value));
  return value;
}

float Product(const IntLayout& layout, const E4m3GemmArgs& args, size_t row, const std::byte* block,
              size_t output) {
  const size_t k_padded = layout.k_padded();
  const size_t width = layout.whole_rows() ? k_padded : layout.group;
  float total = 0;
  for (size_t group = 0; group < layout.groups(); ++group) {
    const std::byte* codes = block + group * layout.group_bytes();
    float sum = 0;
    for (size_t k = 0; k < width && group * width + k < k_padded; ++k) {
      const std::byte code = codes[k / 2 * kE4m3StepBytes + E4m3Place(output) + k % 2];
      sum += Widen(E4m3{static_cast<uint8_t>(code)}) * At(args, row * k_padded + group * width + k);
    }
    total += sum * FloatAt(codes + layout.code_bytes(width), output);  // whole rows: their own
  }
  return total;
}

void Multiply(const IntLayout& layout, const E4m3GemmArgs& args) {
  for (size_t row = 0; row < args.rows; ++row)
    for (size_t n = 0; n < args.blocks * kBlockN; ++n)
      args.y[row * args.ldy + n] =
          Product(layout, args, row, args.w + n / kBlockN * layout.block_bytes(), n % kBlockN);
}

}  // namespace

const E4m3Table kE4m3Scalar = {"scalar", Multiply, Round};

}  // namespace pinion::kernels::impl
