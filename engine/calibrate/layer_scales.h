#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "engine/calibrate/calibration.h"
#include "engine/calibrate/layer_matrices.h"
#include "engine/model/tensors.h"
#include "engine/quant/scheme.h"

namespace pinion {

// Factors that move magnitude from one tensor of a layer into another, so that the model computes
// the same as before.
struct LayerScales {
  // What a matrix's columns are multiplied with; the rows of an MLP's up are divided by what its
  // down's columns are multiplied with.
  std::map<LayerMatrix, std::vector<float>> columns;
  // Tensors that are not quantised but changed with them (norms, routers), in their stored dtype.
  std::map<std::string, std::vector<std::byte>> changed;

  // stack: the matrix as the checkpoint has it.
  void Apply(LayerMatrix matrix, Stack& stack) const;
};

// The factors by which the layer loses least when it is rounded: SmoothQuant's for W8A8, AWQ's,
// none for GPTQ. Those behind a norm are shared by everything that reads it: all experts, the MLP
// beside them and the router, which is why they are powers of two there: tokens choose the same
// experts, to the bit.
LayerScales FindScales(StartedModel& model, const TensorSource& source, const QuantScheme& scheme,
                       int layer, const LayerStatistics& statistics);

}  // namespace pinion
