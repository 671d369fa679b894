#include "engine/model/integer_rows.h"

#include <algorithm>

namespace pinion {

void IntegerRows::Clear(const kernels::IntLayout& layout, const ColumnOrder* order, size_t rows) {
  layout_ = layout;
  order_ = order;
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
  for (size_t r = 0; r < count; ++r) PutRow(tensor, r, column, dst_row + r);
}

// Row `row` of what was read.
void IntegerRows::PutRow(const QuantisedTensor& tensor, size_t row, size_t column, size_t dst_row) {
  const int8_t* src = read_codes_.data() + row * tensor.columns() + column;
  int8_t* dst = codes_.data() + dst_row * layout_.k;
  if (order_) {
    for (size_t i = 0; i < layout_.k; ++i)
      if ((*order_)[i] != kernels::kNoColumn) dst[i] = src[(*order_)[i]];
  } else {
    std::copy_n(src, layout_.k, dst);
  }
  for (size_t group = 0; group < layout_.groups(); ++group) {
    const size_t first = group * layout_.group;  // where no group begins with padding
    const size_t of =
        order_ ? tensor.group_of()[column + (*order_)[first]] : (column + first) / tensor.group();
    scales_[dst_row * layout_.groups() + group] = read_scales_[row * tensor.groups() + of];
    offsets_[dst_row * layout_.groups() + group] = read_offsets_[row * tensor.groups() + of];
  }
}

void IntegerRows::Pack(std::byte* dst, size_t rows) const {
  kernels::PackIntBlock(dst, layout_, codes_.data(), scales_.data(), offsets_.data(), rows);
}

}  // namespace pinion
