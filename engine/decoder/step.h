#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinion {

// The input of one pass of the decoder: consecutive tokens of some sequences, row after row.
struct StepBatch {
  struct Slice {
    size_t first_row = 0, rows = 0;
    size_t first_position = 0;             // of first_row; the cache holds everything before it
    const int32_t* block_table = nullptr;  // covers first_position + rows tokens
  };
  std::vector<int32_t> tokens;      // [rows]
  std::vector<Slice> slices;        // their rows follow one another
  std::vector<int32_t> logit_rows;  // ascending: the rows whose logits are wanted

  void Clear() {
    tokens.clear();
    slices.clear();
    logit_rows.clear();
  }
};

}  // namespace pinion
