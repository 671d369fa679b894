// Gated short convolution: projection to B, C and x, C * conv(B * x), output.

#include "engine/decoder/forward_conv.h"

namespace pinion {

void RunShortConv(const ForwardPass& pass, size_t layer) {
  const LayerWeights& weights = pass.weights.layers[layer];
  Project(pass, "qkv", weights.qkv, pass.w.normed, pass.w.qkv, pass.w.qkv_stride);
  const size_t channels = pass.weights.shard.conv_channels.size();
  const float* gates = pass.w.qkv;  // B, then C; x behind them
  const Convolution convolution = {.layer = layer,
                                   .src = pass.w.qkv + 2 * channels,
                                   .channels = channels,
                                   .taps = weights.conv.taps,
                                   .width = static_cast<size_t>(pass.spec.conv.width)};
  const auto gate_input = [&](size_t row, size_t first, size_t n, float* x) {
    pass.table.weigh(x, gates + row * pass.w.qkv_stride + first, 1, n);
  };
  const size_t element = kernels::SizeOf(pass.activation);
  const auto gate_output = [&](size_t row, size_t first, size_t n, float* x) {
    pass.table.weigh(x, gates + row * pass.w.qkv_stride + channels + first, 1, n);
    pass.table.store(pass.w.recurred + (row * weights.o.k_padded() + first) * element,
                     pass.activation, x, n);
  };
  ShareConvolution(pass, convolution, gate_input, gate_output);
  Project(pass, "o", weights.o, pass.w.recurred, pass.w.attention_partial, pass.w.hidden_stride,
          PhaseScope::kRanks);
}

}  // namespace pinion
