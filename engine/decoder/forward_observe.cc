// Shows a calibration the inputs of the forward pass's matrices.

#include "engine/decoder/forward_pass.h"

namespace pinion {

void Observe(const ForwardPass& pass, const ObservedRows& rows) {
  if (!pass.model.observer) return;
  pass.model.observer->See(pass.worker, rows);
  pass.worker.TeamBarrier();  // later phases overwrite the rows: all must be done with them
}

void Observe(const ForwardPass& pass, const PackedMatrix& matrix, const std::byte* x, size_t rows,
             const ExpertPlan* plan) {
  if (matrix.layer < 0) return;
  Observe(pass,
          {matrix.layer, matrix.role, x, pass.activation, rows, matrix.k, matrix.k_padded(), plan});
}

}  // namespace pinion
