#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "engine/calibrate/aligned_floats.h"
#include "engine/model/activation_observer.h"
#include "kernels/kernels.h"

namespace pinion {

// What a matrix multiplies, over the tokens of the calibration text; k channels.
struct InputStatistics {
  size_t k = 0, rows = 0;      // rows: tokens seen
  std::vector<float> largest;  // [k]: the largest magnitude
  std::vector<double> sums;    // [k]: of magnitudes
  AlignedFloats sample;        // [sample_rows][k_padded]: tokens evenly spread over the text
  size_t sample_rows = 0;
  AlignedFloats gram;  // [k][k], lower triangle: sums of x[i] x[j]; empty unless asked for

  size_t k_padded() const { return kernels::RoundUp(k, kernels::kPadK); }
};
using LayerStatistics = std::map<MatrixRole, InputStatistics>;

// Collects them for some layers while the decoder computes.
// Thread rule: See as ActivationObserver says; everything else between steps.
class StatisticsCollector : public ActivationObserver {
 public:
  static constexpr size_t kSampleRows = 256;

  // For layers [first, last) of a text of `tokens` tokens in all.
  StatisticsCollector(const kernels::Table& table, int first, int last, size_t tokens,
                      bool wants_gram);

  void See(const Worker& worker, const ObservedRows& rows) override;
  LayerStatistics Take(int layer) { return std::move(layers_.at(layer)); }

 private:
  void Begin(const ObservedRows& rows, InputStatistics& inputs);
  void Sample(const ObservedRows& rows, InputStatistics& inputs);
  void Measure(const Worker& worker, const ObservedRows& rows, InputStatistics& inputs);

  const kernels::Table& table_;
  const size_t tokens_;
  const bool wants_gram_;
  std::map<int, LayerStatistics> layers_;
  // The rows in float32, [rows][k], and their transpose, [k][depth], padded with zeros.
  AlignedFloats rows_, columns_;
  size_t depth_ = 0;
};

}  // namespace pinion
