#pragma once

#include <cstddef>
#include <utility>

#include "engine/exec/executor.h"
#include "engine/exec/samplers.h"
#include "engine/host/team.h"
#include "kernels/kernels.h"

namespace pinion {

// Processes the wanted rows of one step. Logits arrive in chunks on all threads of a rank, which
// share the choice of tokens; thread 0 alone hands on rows, so that they stay in order.
class RowResults {
 public:
  // width: of a row. All arguments outlive this.
  RowResults(const kernels::Table& table, size_t width, const StepInput& input, Samplers& samplers,
             StepCaller& caller);

  // Rows wanted[first] to wanted[first + count - 1]; as LogitsSink.
  void Take(const Worker& worker, size_t first, size_t count, float* logits, size_t stride);
  StepOutput TakeOutput() { return std::move(output_); }

 private:
  const kernels::Table& table_;
  const size_t width_;
  const StepInput& input_;
  Samplers& samplers_;
  StepCaller& caller_;
  StepOutput output_;
};

}  // namespace pinion
