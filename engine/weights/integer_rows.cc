#include "engine/weights/integer_rows.h"

#include <algorithm>

namespace pinion {

void IntegerRows::Clear(const kernels::IntLayout& layout, const ColumnOrder* order, size_t rows) {
  layout_ = layout;
  order_ = order;
  codes_.assign(rows * layout.k, static_cast<int8_t>(layout.lowest));
  scales_.assign(rows * layout.groups(), 0.0f);
  offsets_.assign(rows * layout.groups(), 0.0f);
  units_.assign(rows, 1.0f);
}

void IntegerRows::Put(const QuantisedTensor& tensor, size_t row, size_t count, size_t column,
                      size_t dst_row) {
  const size_t columns = tensor.columns(), groups = tensor.groups();
  const bool as_read = !order_ && columns == layout_.k;
  int8_t* dst = codes_.data() + dst_row * layout_.k;
  if (!as_read) read_codes_.resize(count * columns);
  int8_t* codes = as_read ? dst : read_codes_.data();
  read_scales_.resize(count * groups);
  read_offsets_.resize(count * groups);
  tensor.Read(row, count, codes, read_scales_.data(), read_offsets_.data());
  if (!as_read)
    for (size_t r = 0; r < count; ++r) PutCodes(codes + r * columns + column, dst + r * layout_.k);
  PutScales(tensor, count, column, dst_row);
  std::fill_n(units_.begin() + static_cast<ptrdiff_t>(dst_row), count, tensor.scale_unit());
}

void IntegerRows::PutCodes(const int8_t* src, int8_t* dst) const {
  if (!order_) {
    std::copy_n(src, layout_.k, dst);
    return;
  }
  for (size_t i = 0; i < layout_.k; ++i)
    if ((*order_)[i] != kernels::kNoColumn) dst[i] = src[(*order_)[i]];
}

// Spreads the scales and offsets of `count` rows just read over the layout's groups, which may be
// narrower than the tensor's.
void IntegerRows::PutScales(const QuantisedTensor& tensor, size_t count, size_t column,
                            size_t dst_row) {
  const size_t groups = layout_.groups();
  group_of_.resize(groups);
  for (size_t group = 0; group < groups; ++group) {
    const size_t first = group * layout_.group;  // never padding: that comes last
    group_of_[group] =
        order_ ? tensor.group_of()[column + (*order_)[first]] : (column + first) / tensor.group();
  }
  for (size_t r = 0; r < count; ++r)
    for (size_t group = 0; group < groups; ++group) {
      const size_t from = r * tensor.groups() + group_of_[group];
      scales_[(dst_row + r) * groups + group] = read_scales_[from];
      offsets_[(dst_row + r) * groups + group] = read_offsets_[from];
    }
}

void IntegerRows::Pack(std::byte* dst, size_t rows) const {
  kernels::PackIntBlock(dst, layout_, codes_.data(), scales_.data(), offsets_.data(), rows,
                        units_.data());
}

}  // namespace pinion
