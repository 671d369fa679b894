#include "engine/model/integer_rows.h"

#include <algorithm>

namespace pinion {

void IntegerRows::Clear(const kernels::IntLayout& layout, size_t rows) {
  layout_ = layout;
  codes_.assign(rows * layout.k, static_cast<int8_t>(layout.lowest));
  scales_.assign(rows * layout.groups(), 0.0f);
  offsets_.assign(rows * layout.groups(), 0.0f);
}

void IntegerRows::Put(const QuantisedTensor& tensor, size_t row, size_t count, size_t column,
                      size_t dst_row) {
  const size_t columns = tensor.columns(), groups = tensor.groups();
  read_codes_.resize(count * columns);
  read_scales_.resize(count * groups);
  read_offsets_.resize(count * groups);
  tensor.Read(row, count, read_codes_.data(), read_scales_.data(), read_offsets_.data());
  for (size_t r = 0; r < count; ++r) {
    std::copy_n(read_codes_.data() + r * columns + column, layout_.k,
                codes_.data() + (dst_row + r) * layout_.k);
    const size_t dst = (dst_row + r) * layout_.groups();
    for (size_t group = 0; group < layout_.groups(); ++group) {
      const size_t of = r * groups + (column + group * layout_.group) / tensor.group();
      scales_[dst + group] = read_scales_[of];
      offsets_[dst + group] = read_offsets_[of];
    }
  }
}

void IntegerRows::Pack(std::byte* dst, size_t rows) const {
  kernels::PackIntBlock(dst, layout_, codes_.data(), scales_.data(), offsets_.data(), rows);
}

}  // namespace pinion
