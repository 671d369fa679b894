#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "engine/calibrate/calibration.h"
#include "engine/calibrate/layer_matrices.h"
#include "engine/checkpoint/scheme.h"
#include "engine/checkpoint/tensors.h"

namespace pinion {

// Factors that move magnitude from one tensor of a layer into another, so that the model computes
// the same as before.
struct LayerScales {
  // The factors by which a matrix's columns are multiplied; the rows of an MLP's up are divided by
  // the factors of its down's columns.
  std::map<LayerMatrix, std::vector<float>> columns;
  // Tensors that are changed but not quantised (norms, routers), in their stored dtype.
  std::map<std::string, std::vector<std::byte>> changed;

  // stack: the matrix as the checkpoint has it.
  void Apply(LayerMatrix matrix, Stack& stack) const;
};

// The factors with which the layer loses least by rounding: SmoothQuant's for W8A8, AWQ's, none for
// GPTQ. All readers of a norm share its factors. If these are experts, the MLP beside them and the
// router, factors are powers of two: the router's logits stay the same to the bit, and tokens
// choose the same experts.
LayerScales FindScales(StartedModel& model, const TensorSource& source, const QuantScheme& scheme,
                       int layer, const LayerStatistics& statistics);

}  // namespace pinion
