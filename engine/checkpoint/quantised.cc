#include "engine/checkpoint/quantised.h"

#include <array>

#include "kernels/types.h"

namespace pinion {
namespace {

// The value of each code, by its bits.
std::array<float, 256> ValuesOf(const CodeRange& range) {
  std::array<float, 256> values{};
  for (int bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<uint8_t>(bits);
    values[byte] = range.e4m3 ? kernels::ToFloat(kernels::E4m3{byte})
                              : static_cast<float>(static_cast<int8_t>(byte));
  }
  return values;
}

}  // namespace

void Dequantise(const QuantisedTensor& tensor, size_t row, size_t count, float* dst) {
  const size_t columns = tensor.columns(), groups = tensor.groups();
  std::vector<int8_t> codes(count * columns);
  std::vector<float> scales(count * groups), offsets(count * groups);
  tensor.Read(row, count, codes.data(), scales.data(), offsets.data());
  const uint32_t* group_of = tensor.group_of().empty() ? nullptr : tensor.group_of().data();
  const std::array<float, 256> values = ValuesOf(tensor.range());
  for (size_t r = 0; r < count; ++r) {
    const int8_t* code = codes.data() + r * columns;
    const float *scale = scales.data() + r * groups, *offset = offsets.data() + r * groups;
    for (size_t column = 0; column < columns; ++column) {
      const size_t group = group_of ? group_of[column] : column / tensor.group();
      dst[r * columns + column] =
          scale[group] * values[static_cast<uint8_t>(code[column])] + offset[group];
    }
  }
}

}  // namespace pinion
