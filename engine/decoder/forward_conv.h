#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/trace.h"
#include "engine/decoder/forward_pass.h"

namespace pinion {

// A causal convolution, each channel by itself, over the tokens of every sequence of a step. In
// place: rows of pass.w.qkv_stride floats, whose first `channels` from src on are replaced. Inputs
// that a sequence's next step will see are kept in pass.states.
struct Convolution {
  size_t layer;
  float* src;
  size_t channels;
  const float* taps;  // [width][channels]
  size_t width;
};

// log(1 + e^x), by which decays and time steps of recurrent layers are kept positive.
inline float Softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// Channels that a thread convolves at a time, and rows, which stay in L1 until `after` has seen
// them.
inline constexpr size_t kConvChannels = 64, kConvRows = 32;

// The rows that a convolution of some channels sees: those of the slice and, before them, the
// sequence's last ones (zeros if it begins here).
struct ConvInputs {
  float* rows;  // [count], stride floats apart
  const float* tail;
  size_t stride, count, tail_stride;

  // Row `at` - (width - 1) of the slice.
  const float* At(size_t at, size_t width) const {
    return at + 1 < width ? tail + at * tail_stride : rows + (at + 1 - width) * stride;
  }
};

// `n` channels from `first` on of one slice. Goes from the last rows to the first, since a row is
// an input of later ones. before, after: (row, first, n, data) sees each row's channels, data at
// the first of them, before it is read and after it is computed.
template <typename Before, typename After>
void ConvolveChannels(const ForwardPass& pass, const Convolution& convolution,
                      const StepBatch::Slice& slice, size_t first, size_t n, const Before& before,
                      const After& after) {
  static constexpr std::array<float, kConvChannels> kZeros{};
  const size_t channels = convolution.channels, width = convolution.width;
  float* tail = pass.states.Tail(convolution.layer, slice.place) + first;
  const bool fresh = slice.first_position == 0;
  const size_t stride = pass.w.qkv_stride;
  const ConvInputs inputs = {convolution.src + slice.first_row * stride + first,
                             fresh ? kZeros.data() : tail, stride, slice.rows,
                             fresh ? 0 : channels};
  for (size_t row = 0; row < slice.rows; ++row)
    before(slice.first_row + row, first, n, inputs.rows + row * stride);
  std::array<float, kMaxConvWidth * kConvChannels> next;
  for (size_t i = 0; i + 1 < width; ++i)
    std::copy_n(inputs.At(slice.rows + i, width), n, next.data() + i * kConvChannels);
  std::array<const float*, kConvRows + kMaxConvWidth> seen;
  for (size_t end = slice.rows; end > 0; end -= std::min(kConvRows, end)) {
    const size_t begin = end - std::min(kConvRows, end), rows = end - begin;
    for (size_t i = 0; i < rows + width - 1; ++i) seen[i] = inputs.At(begin + i, width);
    pass.table.short_conv({.inputs = seen.data(),
                           .weights = convolution.taps + first,
                           .width = width,
                           .weight_stride = channels,
                           .n = n,
                           .rows = rows,
                           .dst = inputs.rows + begin * stride,
                           .stride = stride});
    for (size_t row = begin; row < end; ++row)
      after(slice.first_row + row, first, n, inputs.rows + row * stride);
  }
  for (size_t i = 0; i + 1 < width; ++i)
    std::copy_n(next.data() + i * kConvChannels, n, tail + i * channels);
}

// A phase: all slices and channels.
template <typename Before, typename After>
void ShareConvolution(const ForwardPass& pass, const Convolution& convolution, const Before& before,
                      const After& after) {
  const TraceSpan span("convolve", "layer", convolution.layer);
  const size_t parts = (convolution.channels + kConvChannels - 1) / kConvChannels;
  const auto& slices = pass.batch.slices;
  pass.worker.ShareOneByOne(slices.size() * parts, [&](size_t i) {
    const size_t first = i % parts * kConvChannels;
    ConvolveChannels(pass, convolution, slices[i / parts], first,
                     std::min(kConvChannels, convolution.channels - first), before, after);
  });
}

}  // namespace pinion
