#pragma once

#include <cstddef>

#include "engine/host/team.h"
#include "engine/model/expert_plan.h"
#include "engine/model/format_plan.h"
#include "kernels/types.h"

namespace pinion {

// Rows of activations that a matrix is about to multiply.
struct ObservedRows {
  int layer;
  MatrixRole role;
  const std::byte* x;  // [rows][stride] of `type`; the first k columns are the matrix's inputs
  kernels::Dtype type;
  size_t rows, k, stride;
  // Of experts, else null: who computes what. Rows are those of the step for kExpertIn, of which
  // each expert takes its own (plan->row); assignments for kExpertDown.
  const ExpertPlan* plan = nullptr;
};

// Sees the inputs of every layer's matrices as the decoder computes: calibration.
class ActivationObserver {
 public:
  virtual ~ActivationObserver() = default;
  // Called by every thread of the team at once, with the same rows; the team's barriers may be used
  // inside. The rows are valid until it has returned on all threads.
  virtual void See(const Worker& worker, const ObservedRows& rows) = 0;
};

}  // namespace pinion
