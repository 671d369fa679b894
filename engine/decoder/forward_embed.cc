// The beginning of a forward pass: embeddings and rotary angles.

#include <algorithm>
#include <cmath>

#include "engine/base/trace.h"
#include "engine/decoder/forward_pass.h"

namespace pinion {
namespace {

using kernels::Dtype;

void EmbedToken(const ForwardPass& pass, size_t row, size_t position) {
  float* residual = pass.residual(row);
  ReadRow(pass, pass.model.embedding, static_cast<size_t>(pass.batch.tokens[row]), pass.hidden,
          residual);
  if (pass.spec.embedding_multiplier != 1)
    pass.table.scale(residual, pass.spec.embedding_multiplier, pass.hidden);
  float* learned = pass.scratch.hidden_row;
  if (!pass.model.type_embedding.name.empty()) {
    const int32_t type = pass.batch.types.empty() ? 0 : pass.batch.types[row];
    ReadRow(pass, pass.model.type_embedding, static_cast<size_t>(type), pass.hidden, learned);
    pass.table.add(residual, learned, pass.hidden);
  }
  if (pass.model.position_embedding.name.empty()) return;
  ReadRow(pass, pass.model.position_embedding,
          position + static_cast<size_t>(pass.spec.position_offset), pass.hidden, learned);
  pass.table.add(residual, learned, pass.hidden);
}

// The angle is rounded to float32 before cos and sin, as the reference does: at large positions
// the rounding is larger than any error of the functions.
void FillAngles(const ForwardPass& pass, size_t row, size_t position) {
  for (size_t r = 0; r < pass.model.ropes.size(); ++r) {
    const RopeAngles& rope = pass.model.ropes[r];
    const size_t half = rope.frequencies.size();
    const auto [cosine, sine] = pass.w.angles[r].row(row, half);
    for (size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * rope.frequencies[i];
      cosine[i] = std::cos(angle) * rope.scale;
      sine[i] = std::sin(angle) * rope.scale;
    }
  }
}

}  // namespace

void ReadRow(const ForwardPass& pass, const TensorInfo& tensor, size_t row, size_t n, float* dst) {
  const std::byte* src = pass.model.source->Rows(tensor, row, 1, pass.scratch.row);
  kernels::Convert(reinterpret_cast<std::byte*>(dst), Dtype::kF32, src, tensor.dtype, n);
}

void Embed(const ForwardPass& pass, bool embeds, size_t begin, size_t end) {
  const TraceSpan span("embed");
  size_t slice = 0;
  for (size_t row = begin; row < end; ++row) {
    while (row >= pass.batch.slices[slice].first_row + pass.batch.slices[slice].rows) ++slice;
    const auto& of = pass.batch.slices[slice];
    const size_t position = of.first_position + row - of.first_row;
    if (embeds) {
      EmbedToken(pass, row, position);
      NormRow(pass, pass.weights.embedding_norm, pass.residual(row), Dtype::kF32,
              pass.residual(row));
    }
    FillAngles(pass, row, position);
  }
}

}  // namespace pinion
