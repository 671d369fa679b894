#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "engine/calibrate/aligned_floats.h"
#include "engine/host/team.h"
#include "kernels/kernels.h"

namespace pinion {

// The inputs of a matrix over the tokens of the calibration text; k channels.
struct InputStatistics {
  size_t k = 0, rows = 0;      // rows: tokens seen
  std::vector<float> largest;  // [k]: the largest magnitude
  std::vector<double> sums;    // [k]: of magnitudes
  AlignedFloats sample;        // [sample_rows][k_padded]: tokens evenly spread over the text
  size_t sample_rows = 0;
  // Empty unless asked for:
  AlignedFloats gram;       // [k][k], lower triangle: sums of x[i] x[j]
  double pair_squares = 0;  // the sum of (x[i] x[j])^2 over all i != j

  size_t k_padded() const { return kernels::RoundUp(k, kernels::kPadK); }
};

// Rows of inputs in any memory: k elements of a type each.
struct InputRows {
  size_t rows, k;
  std::function<std::pair<const std::byte*, kernels::Dtype>(size_t row)> at;
};

// Adds rows to statistics. One object serves many statistics, one team at a time.
class StatisticsMeter {
 public:
  static constexpr size_t kSampleRows = 256;

  StatisticsMeter(const kernels::Table& table, bool wants_gram)
      : table_(table), wants_gram_(wants_gram) {}

  // Called by every thread of the team at once. tokens: rows in all that `inputs` will see.
  void Add(const Worker& worker, const InputRows& rows, size_t tokens, InputStatistics& inputs);

 private:
  void AddSome(const Worker& worker, const InputRows& rows, size_t first, size_t count,
               size_t tokens, InputStatistics& inputs);
  void Begin(size_t count, size_t k, size_t tokens, InputStatistics& inputs);
  void Read(const InputRows& rows, size_t row, size_t to);
  void Sample(size_t count, size_t tokens, InputStatistics& inputs) const;
  void Measure(const Worker& worker, size_t count, InputStatistics& inputs);

  const kernels::Table& table_;
  const bool wants_gram_;
  // The rows in float32, [count][k], and their transpose, [k][depth], padded with zeros.
  AlignedFloats rows_, columns_;
  std::vector<double> pair_squares_;  // [count]
  size_t depth_ = 0;
};

}  // namespace pinion
