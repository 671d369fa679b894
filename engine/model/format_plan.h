#pragma once

#include <map>
#include <optional>
#include <utility>

#include "kernels/integer.h"

namespace pinion {

// The matrices of a decoder that have a form of their own in memory.
// kMlpIn and kDown are a dense MLP's, or those of the one beside a layer's experts.
enum class MatrixRole { kQkv, kO, kMlpIn, kDown, kExpertIn, kExpertDown, kHead };

// A matrix that stays in integers: what kernels::IntLayout needs to know, less its share's shape.
struct IntegerFormat {
  int bits = 8;
  size_t group = 0;  // columns; 0: whole rows
  int lowest = -128;
  bool has_offsets = false;
  kernels::Rounding rounding;  // of the activations
};

// The matrices that stay in integers; all others are packed in the decoder's dtype. Plain data,
// made once from the checkpoint's headers, so that memory can be counted before anything is read.
class FormatPlan {
 public:
  // Null: the decoder's dtype.
  const IntegerFormat* Find(int layer, MatrixRole role) const;
  void Set(int layer, MatrixRole role, const IntegerFormat& format);
  bool empty() const { return formats_.empty(); }
  size_t size() const { return formats_.size(); }

 private:
  std::map<std::pair<int, MatrixRole>, IntegerFormat> formats_;
};

// Groups are multiples of this many columns.
inline constexpr size_t kSmallestIntGroup = 16;

// The layout of a share of such a matrix, the columns [column, column + k) of the whole one; empty
// where the cut leaves no group that large, so that the share must be dequantised.
std::optional<kernels::IntLayout> LayoutOf(const IntegerFormat& format, size_t column, size_t k);

}  // namespace pinion
