#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "engine/calibrate/aligned_floats.h"
#include "engine/calibrate/calibration.h"
#include "engine/model/tensors.h"
#include "engine/quant/rounding.h"
#include "engine/quant/scheme.h"

namespace pinion {

// The integers of the modules that make one matrix of a layer, row after row.
struct RoundedMatrix {
  size_t k = 0, groups = 0;
  std::vector<int8_t> codes;           // [rows][k]
  std::vector<float> scales, offsets;  // [rows][groups]
};

struct QuantisedLayer {
  std::map<MatrixRole, RoundedMatrix> matrices;
  // Tensors that are not quantised but changed with them (norms), in their stored dtype.
  std::map<std::string, std::vector<std::byte>> changed;
};

// The matrices of `layer` that calibration covers: attention unless it is latent, dense MLPs.
std::vector<MatrixRole> CalibratedRoles(const DecoderSpec& spec, int layer);

// Quantises one layer with what calibration says of it: W8A8 with channels' scales moved from
// activations to weights (SmoothQuant), AWQ with its scales, GPTQ. Scales go into the norm before
// a matrix, and those of the MLP's output into its up projection, so that the model computes the
// same as before.
QuantisedLayer QuantiseLayer(StartedModel& model, const TensorSource& source,
                             const QuantScheme& scheme, int layer, LayerStatistics statistics);

}  // namespace pinion
