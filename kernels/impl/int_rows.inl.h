#pragma once

// What follows the columns of a rounded row of activations (integer.h).

#include "kernels/integer.h"

namespace pinion::kernels::impl {
namespace {

struct RowTail {
  float scale;
  int32_t zero_point;
};
RowTail TailOf(const IntLayout& layout, const std::byte* row) {
  RowTail tail;
  __builtin_memcpy(&tail, row + layout.columns(), sizeof(tail));
  return tail;
}
const int32_t* SumsOf(const IntLayout& layout, const std::byte* row) {
  return reinterpret_cast<const int32_t*>(row + layout.columns() + sizeof(RowTail));
}

struct OutliersOfRow {
  const Outlier* first;
  uint32_t count;
};
// Of a layout with room for outliers.
OutliersOfRow OutliersOf(const IntLayout& layout, const std::byte* row) {
  const std::byte* at = row + layout.outliers_at();
  OutliersOfRow of{reinterpret_cast<const Outlier*>(at + sizeof(of.count)), 0};
  __builtin_memcpy(&of.count, at, sizeof(of.count));
  return of;
}

}  // namespace
}  // namespace pinion::kernels::impl
