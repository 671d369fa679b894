#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/spec/spec.h"
#include "kernels/types.h"

namespace pinion {

// The tables of `pinion model info`'s text.
//
// Rows of cells, each column as wide as its widest cell; numbers of `right` columns to the right.
class TextTable {
 public:
  explicit TextTable(std::string right) : right_(std::move(right)) {}
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string Text() const;

 private:
  size_t Width(size_t column) const;
  std::string right_;  // 'l' or 'r' per column
  std::vector<std::vector<std::string>> rows_;
};

inline constexpr kernels::Dtype kWeightDtypes[] = {kernels::Dtype::kBf16, kernels::Dtype::kF16,
                                                   kernels::Dtype::kF32};
// Weights in each of these, keys and values in all types of the cache. Of weights that are
// quantised, the bytes that they would take; "in memory" has those that they do. An encoder keeps
// nothing of a text, so that its table has two columns and the rows of weights alone.
std::string ByteTable(const DecoderSpec& spec, bool quantised);
// Tensors that several layers have are shown once, as "layers.*." and the number of layers.
std::string TensorTable(const DecoderSpec& spec);

}  // namespace pinion
