// Several residual streams (AltUpSpec), and the low-rank term beside attention.

#include <algorithm>
#include <cmath>

#include "engine/base/trace.h"
#include "engine/decoder/forward_pass.h"

namespace pinion {
namespace {

using kernels::Dtype;

constexpr float kLeastMean = 1e-5f;  // of a stream's squares, so that no length is divided by 0

size_t Streams(const ForwardPass& pass) { return static_cast<size_t>(pass.spec.alt_up.streams); }

float MeanSquare(const ForwardPass& pass, const float* row) {
  return pass.table.sum_squares(row, pass.hidden) / static_cast<float>(pass.hidden);
}

// The factor that makes `row` as long as `model`.
float ToLengthOf(const ForwardPass& pass, const float* model, const float* row) {
  return std::sqrt(MeanSquare(pass, model)) /
         std::sqrt(std::max(MeanSquare(pass, row), kLeastMean));
}

// m[streams] = tanh(router(router_norm(x) / hidden)).
void Route(const ForwardPass& pass, const AltUpWeights& altup, const float* x, float* m) {
  float* input = pass.scratch.router_row;
  float* output = input + pass.w.normed_stride;
  pass.table.rms_norm(input, Dtype::kF32, x, altup.router_norm, pass.hidden, pass.spec.norm_eps);
  MultiplyBlocks(pass, altup.router,
                 {reinterpret_cast<const std::byte*>(input), altup.router.block(0), output, 1, 1,
                  kernels::kBlockN});
  for (size_t i = 0; i < Streams(pass); ++i) m[i] = std::tanh(output[i]);
}

float Dot(const float* weights, const float* m, size_t n) {
  float sum = 0;
  for (size_t i = 0; i < n; ++i) sum += weights[i] * m[i];
  return sum;
}

// All streams become their predictions; the first one's is the layer's residual stream.
void PredictRow(const ForwardPass& pass, const AltUpWeights& altup, size_t row) {
  const size_t streams = Streams(pass);
  float m[kMaxStreams];
  Route(pass, altup, pass.stream(0, row), m);
  float* before = pass.scratch.stream_rows;
  for (size_t p = 0; p < streams; ++p)
    std::copy_n(pass.stream(p, row), pass.hidden, before + p * pass.hidden);
  for (size_t q = 0; q < streams; ++q)
    for (size_t p = 0; p < streams; ++p)
      pass.table.add_scaled(pass.stream(q, row), before + p * pass.hidden,
                            Dot(altup.predict + (q * streams + p) * streams, m, streams),
                            pass.hidden);
  std::copy_n(pass.stream(0, row), pass.hidden, pass.residual(row));
}

void CorrectRow(const ForwardPass& pass, const AltUpWeights& altup, size_t row) {
  const size_t streams = Streams(pass);
  float m[kMaxStreams];
  Route(pass, altup, pass.residual(row), m);
  float* difference = pass.scratch.stream_rows;
  std::copy_n(pass.residual(row), pass.hidden, difference);
  pass.table.add_scaled(difference, pass.stream(0, row), -1, pass.hidden);
  for (size_t q = 0; q < streams; ++q)
    pass.table.add_scaled(pass.stream(q, row), difference,
                          Dot(altup.correct + q * streams, m, streams) + 1, pass.hidden);
}

}  // namespace

void SpreadStreams(const ForwardPass& pass) {
  const auto& matrices = pass.weights.streams_in;
  for (size_t i = 0; i < matrices.size(); ++i)
    Project(pass, "streams", matrices[i], pass.w.normed, pass.stream(i + 1, 0),
            pass.w.hidden_stride);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      std::copy_n(pass.residual(row), pass.hidden, pass.stream(0, row));
      for (size_t q = 1; q < Streams(pass); ++q) {
        float* stream = pass.stream(q, row);
        pass.table.scale(stream, ToLengthOf(pass, pass.residual(row), stream), pass.hidden);
      }
    }
  });
}

void PredictStreams(const ForwardPass& pass, size_t layer, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row)
    PredictRow(pass, pass.weights.layers[layer].alt_up, row);
}

void CorrectStreams(const ForwardPass& pass, size_t layer, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row)
    CorrectRow(pass, pass.weights.layers[layer].alt_up, row);
}

void GatherStreams(const ForwardPass& pass) {
  const auto& matrices = pass.weights.streams_out;
  const auto add = [&](size_t row) {
    const float* term = pass.w.streams.term + row * pass.w.hidden_stride;
    pass.table.add_scaled(pass.residual(row), term, ToLengthOf(pass, pass.stream(0, row), term),
                          pass.hidden);
  };
  for (size_t i = 0; i <= matrices.size(); ++i) {
    pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
      for (size_t row = begin; row < end; ++row) {
        if (i == 0)
          std::copy_n(pass.stream(0, row), pass.hidden, pass.residual(row));
        else
          add(row);
        if (i < matrices.size())
          pass.table.store(pass.normed(row), pass.activation, pass.stream(i + 1, row), pass.hidden);
        else
          pass.table.scale(pass.residual(row), 1 / static_cast<float>(Streams(pass)), pass.hidden);
      }
    });
    if (i < matrices.size())
      Project(pass, "streams", matrices[i], pass.w.normed, pass.w.streams.term,
              pass.w.hidden_stride);
  }
}

void RunLaurel(const ForwardPass& pass, size_t layer) {
  const StreamBuffers& streams = pass.w.streams;
  const LaurelWeights& laurel = pass.weights.layers[layer].laurel;
  Project(pass, "laurel", laurel.left, pass.w.normed, streams.gate, streams.gate_stride);
  const size_t row_bytes = laurel.right.k_padded() * kernels::SizeOf(pass.activation);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row)
      pass.table.store(streams.narrowed + row * row_bytes, pass.activation,
                       streams.gate + row * streams.gate_stride, laurel.left.outputs);
  });
  Project(pass, "laurel", laurel.right, streams.narrowed, streams.term, pass.w.hidden_stride);
}

void AddLaurel(const ForwardPass& pass, size_t layer, size_t begin, size_t end) {
  float* taken = pass.scratch.hidden_row;
  for (size_t row = begin; row < end; ++row) {
    float *residual = pass.residual(row), *term = pass.w.streams.term + row * pass.w.hidden_stride;
    NormRow(pass, pass.weights.layers[layer].laurel.norm, term, Dtype::kF32, term);
    pass.table.add(residual, term, pass.hidden);
    pass.table.convert(reinterpret_cast<std::byte*>(taken), Dtype::kF32, pass.normed(row),
                       pass.activation, pass.hidden);
    pass.table.add(residual, taken, pass.hidden);
    pass.table.scale(residual, std::sqrt(0.5f), pass.hidden);
  }
}

}  // namespace pinion
