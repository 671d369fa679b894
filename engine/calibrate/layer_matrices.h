#pragma once

#include <compare>
#include <cstddef>
#include <string>
#include <vector>

#include "engine/calibrate/aligned_floats.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/spec.h"
#include "engine/weights/format_plan.h"

namespace pinion {

// A matrix of a layer that is calibrated by itself.
struct LayerMatrix {
  MatrixRole role;
  int expert = -1;  // -1: not an expert's

  bool of_expert() const { return expert >= 0; }
  auto operator<=>(const LayerMatrix&) const = default;
};

// The matrices of `layer` that calibration covers: all linears but the router and experts that are
// stored as one tensor, which no scheme quantises.
std::vector<LayerMatrix> CalibratedMatrices(const DecoderSpec& spec, int layer);

// The modules whose rows make the matrix, one after the other; empty if the layer has no such
// matrix.
std::vector<std::string> ModulesOf(const DecoderSpec& spec, int layer, LayerMatrix matrix);

// A matrix in float32.
struct Stack {
  size_t rows = 0, k = 0;
  AlignedFloats weights;  // [rows][k]
  float* row(size_t index) { return weights.data() + index * k; }
};

// Everything that is read is there: OpenWeights has checked it.
TensorInfo MustFind(const TensorSource& source, const std::string& name);
void ReadTensor(const TensorSource& source, const TensorInfo& info, float* dst);
Stack ReadStack(const TensorSource& source, const std::vector<std::string>& modules);

}  // namespace pinion
