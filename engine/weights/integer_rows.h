#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/checkpoint/quantised.h"
#include "engine/weights/format_plan.h"
#include "kernels/integer.h"

namespace pinion {

// Rows of integers on their way from a checkpoint into a packed block: collected in the groups of
// the block's layout, which may be finer than the checkpoint's.
class IntegerRows {
 public:
  // Begins a block of `rows` rows of zeros. `order`: of the share that the block belongs to, must
  // outlive Pack; null: columns keep their order.
  void Clear(const kernels::IntLayout& layout, const ColumnOrder* order, size_t rows);
  // Rows [row, row + count) of `tensor`, its columns from `column` on, as rows from `dst_row` on.
  void Put(const QuantisedTensor& tensor, size_t row, size_t count, size_t column, size_t dst_row);
  void Pack(std::byte* dst, size_t rows) const;

 private:
  void PutCodes(const int8_t* src, int8_t* dst) const;
  void PutScales(const QuantisedTensor& tensor, size_t count, size_t column, size_t dst_row);

  kernels::IntLayout layout_;
  const ColumnOrder* order_ = nullptr;
  std::vector<int8_t> codes_, read_codes_;
  std::vector<float> scales_, offsets_, units_, read_scales_, read_offsets_;
  std::vector<size_t> group_of_;  // of the columns read, by the layout's groups
};

}  // namespace pinion
