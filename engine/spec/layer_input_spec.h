#pragma once

namespace pinion {

// Vectors of `size` elements that belong to a token and a layer (Gemma 3n, Gemma 4 E):
//   input = (norm(projection(embedding) / sqrt(hidden)) + table[token] * sqrt(size)) / sqrt(2)
// At its end a layer adds post_norm(out(activation(gate(x)) * input)) to the residual stream x.
struct LayerInputSpec {
  int size = 0;        // 0: layers have no such inputs
  int vocabulary = 0;  // rows of the table; tokens beyond it take the first
};

// AltUp (arXiv:2301.13310) as in Gemma 3n: several residual streams, of which a layer computes the
// first alone and predicts and corrects the others. At a layer's beginning, with s the streams,
//   m = tanh(router(router_norm(s[0]) / hidden)), s[q] += sum over p of (predict m)[q][p] s[p]
// The layer takes s[0] and gives y; then, with m of y,
//   s[q] += ((correct m)[q] + 1) * (y - s[0])
// The term of the layer's input is made from s[0] * scale and added to all streams but the first.
// All streams begin as products of the embedding and end as products with them, each as long as the
// first one, and are averaged.
struct AltUpSpec {
  int streams = 0;  // 0: there is one residual stream, as usual
};

// The limit of the forward pass; published models have 4.
inline constexpr int kMaxStreams = 16;

}  // namespace pinion
