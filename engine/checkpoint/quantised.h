#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/types.h"

namespace pinion {

// The integers of a quantised matrix. Every published format that Pinion reads has this form:
// columns are cut into groups, and
//   weight[row][column] = scale[row][group] * code[row][column] + offset[row][group]
struct CodeRange {
  int lowest = -8, highest = 7;  // of a code; both fit an int8
  bool has_offsets = false;      // false: all offsets are 0
  // Unless kF16, codes are twice the values of e2m1 (-12 to 12), and scales powers of two (MXFP4)
  // or numbers of e4m3 in units (NVFP4).
  kernels::ScaleType scale_type = kernels::ScaleType::kF16;
  // Codes are the bytes of e4m3 (kernels::E4m3), and their values take the codes' place above: FP8.
  bool e4m3 = false;
};

// A matrix of integers with their scales, read where the file holds it.
// Thread rule: any number of threads may read.
class QuantisedTensor {
 public:
  virtual ~QuantisedTensor() = default;

  size_t rows() const { return rows_; }
  size_t columns() const { return columns_; }
  size_t group() const { return group_; }  // columns that share a scale: 1 to columns()
  size_t groups() const { return (columns_ + group_ - 1) / group_; }
  const CodeRange& range() const { return range_; }
  const std::string& format() const { return format_; }    // "Q4_K", "AWQ int4": for people
  uint64_t stored_bytes() const { return stored_bytes_; }  // codes and scales in the file
  float scale_unit() const { return scale_unit_; }         // of scales in e4m3
  // The group of each column if groups are not consecutive columns (GPTQ's act-order); else empty.
  const std::vector<uint32_t>& group_of() const { return group_of_; }

  // Rows [row, row + count):
  //   codes    [count][columns()]
  //   scales   [count][groups()]
  //   offsets  [count][groups()], written in any case
  virtual void Read(size_t row, size_t count, int8_t* codes, float* scales,
                    float* offsets) const = 0;
  // These rows have been packed and will hardly be read again: file pages may go.
  virtual void Release(size_t row, size_t count) const {}

 protected:
  size_t rows_ = 0, columns_ = 0, group_ = 1;
  CodeRange range_;
  std::string format_;
  uint64_t stored_bytes_ = 0;
  float scale_unit_ = 1;
  std::vector<uint32_t> group_of_;
};

// Rows [row, row + count) as float32 [count][columns()]. If the product of scale and code has at
// most 24 significant bits (all formats but GGUF's K types), this is exact up to one rounding.
void Dequantise(const QuantisedTensor& tensor, size_t row, size_t count, float* dst);

}  // namespace pinion
