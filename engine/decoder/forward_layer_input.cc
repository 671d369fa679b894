// Inputs of layers by token (LayerInputSpec).

#include <cmath>

#include "engine/base/trace.h"
#include "engine/decoder/forward_pass.h"
#include "engine/spec/stage.h"

namespace pinion {
namespace {

using kernels::Dtype;

// The token's row of the table, float32, from the stage's first layer on; the first row if it has
// none.
const float* TableRow(const ForwardPass& pass, size_t row) {
  const LayerInputSpec& inputs = pass.spec.layer_inputs;
  const int32_t token = pass.batch.tokens[row];
  const auto index = static_cast<size_t>(token < inputs.vocabulary ? token : 0);
  const auto size = static_cast<size_t>(inputs.size);
  ReadRow(pass, pass.model.layer_input_table, index, pass.spec.layer_specs.size() * size,
          pass.scratch.input_row);
  return pass.scratch.input_row + FirstLayer(pass.spec) * size;
}

// Turns a row of the projection into the inputs of all layers.
void FinishInputs(const ForwardPass& pass, size_t row) {
  const auto size = static_cast<size_t>(pass.spec.layer_inputs.size);
  const size_t width = pass.w.streams.input_width;
  float* inputs = pass.w.streams.inputs + row * pass.w.streams.inputs_stride;
  pass.table.scale(inputs, 1 / std::sqrt(static_cast<float>(pass.hidden)), width);
  for (size_t at = 0; at < width; at += size)
    pass.table.rms_norm(inputs + at, Dtype::kF32, inputs + at, pass.weights.layer_input_norm, size,
                        pass.spec.norm_eps);
  pass.table.add_scaled(inputs, TableRow(pass, row), std::sqrt(static_cast<float>(size)), width);
  pass.table.scale(inputs, std::sqrt(0.5f), width);
}

}  // namespace

void ComputeLayerInputs(const ForwardPass& pass) {
  const StreamBuffers& streams = pass.w.streams;
  Project(pass, "layer inputs", pass.weights.layer_inputs, pass.w.normed, streams.inputs,
          streams.inputs_stride);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) FinishInputs(pass, row);
  });
}

void RunLayerInput(const ForwardPass& pass, size_t layer) {
  const StreamBuffers& streams = pass.w.streams;
  const LayerInputWeights& weights = pass.weights.layers[layer].input;
  const auto size = static_cast<size_t>(pass.spec.layer_inputs.size);
  Project(pass, "input gate", weights.gate, pass.w.normed, streams.gate, streams.gate_stride);
  const size_t row_bytes = weights.out.k_padded() * kernels::SizeOf(pass.activation);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row)
      pass.table.activate_gated(
          streams.gated + row * row_bytes, pass.activation, pass.spec.activation,
          streams.gate + row * streams.gate_stride,
          streams.inputs + row * streams.inputs_stride + (layer - FirstLayer(pass.spec)) * size,
          size);
  });
  Project(pass, "input out", weights.out, streams.gated, streams.term, pass.w.hidden_stride);
}

}  // namespace pinion
