#pragma once

#include <cstddef>

#include "engine/decoder/expert_plan.h"
#include "engine/host/team.h"
#include "engine/weights/format_plan.h"
#include "kernels/types.h"

namespace pinion {

// Rows of activations that a matrix is about to multiply.
struct ObservedRows {
  int layer;
  MatrixRole role;
  const std::byte* x;  // [rows][stride] of `type`; the first k columns are the matrix's inputs
  kernels::Dtype type;
  size_t rows, k, stride;
  // Null except for experts: which expert computes which rows. For kExpertIn, rows are those of the
  // step, of which each expert takes its own (plan->row); for kExpertDown they are assignments.
  const ExpertPlan* plan = nullptr;
};

// Sees the inputs of every layer's matrices as the decoder computes; used by calibration.
class ActivationObserver {
 public:
  virtual ~ActivationObserver() = default;
  // Called by every thread of the team at once, with the same rows; the team's barriers may be used
  // inside. The rows are valid until it has returned on all threads.
  virtual void See(const Worker& worker, const ObservedRows& rows) = 0;
};

}  // namespace pinion
