#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/calibrate/calibration.h"
#include "engine/calibrate/layer_matrices.h"
#include "engine/checkpoint/scheme.h"
#include "engine/checkpoint/tensors.h"

namespace pinion {

// The integers of the modules that make one matrix of a layer, row after row.
struct RoundedMatrix {
  size_t k = 0, groups = 0;
  std::vector<int8_t> codes;           // [rows][k]
  std::vector<float> scales, offsets;  // [rows][groups]
};

struct QuantisedLayer {
  std::map<LayerMatrix, RoundedMatrix> matrices;
  // Tensors that are changed but not quantised, in their stored dtype.
  std::map<std::string, std::vector<std::byte>> changed;
};

// Quantises one layer by its calibration: W8A8 with scales moved from activations to weights
// (SmoothQuant), AWQ with its scales, or GPTQ. Beside the result, one matrix at a time is in
// memory.
QuantisedLayer QuantiseLayer(StartedModel& model, const TensorSource& source,
                             const QuantScheme& scheme, int layer, LayerStatistics statistics);

}  // namespace pinion
