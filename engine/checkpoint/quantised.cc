#include "engine/checkpoint/quantised.h"

namespace pinion {

void Dequantise(const QuantisedTensor& tensor, size_t row, size_t count, float* dst) {
  const size_t columns = tensor.columns(), groups = tensor.groups();
  std::vector<int8_t> codes(count * columns);
  std::vector<float> scales(count * groups), offsets(count * groups);
  tensor.Read(row, count, codes.data(), scales.data(), offsets.data());
  const uint32_t* group_of = tensor.group_of().empty() ? nullptr : tensor.group_of().data();
  for (size_t r = 0; r < count; ++r) {
    const int8_t* code = codes.data() + r * columns;
    const float *scale = scales.data() + r * groups, *offset = offsets.data() + r * groups;
    for (size_t column = 0; column < columns; ++column) {
      const size_t group = group_of ? group_of[column] : column / tensor.group();
      dst[r * columns + column] = scale[group] * static_cast<float>(code[column]) + offset[group];
    }
  }
}

}  // namespace pinion
