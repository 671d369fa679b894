#pragma once

#include <cstddef>
#include <vector>

#include "engine/calibrate/statistics_meter.h"
#include "engine/decoder/activation_observer.h"

namespace pinion {

// The rows that the experts of one layer multiplied, unchanged. They are kept until an expert is
// quantised, since the rows of all tokens are a fraction of the Gram matrices of all experts (at
// Qwen3-30B-A3B's shape and 16,384 tokens in bfloat16 0.27 GB against 2.4). Thread rule: See as
// ActivationObserver says; everything else between steps.
class ExpertRows {
 public:
  void See(const Worker& worker, const ObservedRows& rows);

  bool empty() const { return steps_.empty(); }  // the layer has none
  size_t tokens(size_t expert) const;            // that chose it
  // The rows that one expert's matrix multiplied, by their order in the text. The object outlives
  // them.
  InputRows Of(MatrixRole role, size_t expert) const;
  // Their statistics; k = 0 without any. Call it between steps: it runs on the teams of `ranks`.
  InputStatistics StatisticsOf(MatrixRole role, size_t expert, const kernels::Table& table,
                               Ranks& ranks, bool wants_gram) const;

 private:
  struct StoredRows {
    size_t k = 0;
    std::vector<std::byte> rows;  // [rows][k] of type_
  };
  struct Step {
    ExpertPlan plan;
    StoredRows in, down;  // the step's rows; the activations of its assignments, before down
  };

  kernels::Dtype type_ = kernels::Dtype::kF32;
  std::vector<Step> steps_;
};

}  // namespace pinion
