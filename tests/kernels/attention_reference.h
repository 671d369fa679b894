#pragma once

// The exact results of attention, in double, with a bound on the error of the kernels' arithmetic.

#include <algorithm>

#include "tests/kernels/attention_scene.h"

namespace pinion::kernels::testing {

// Textbook attention in double, with a bound on the error of float32 and, if the kernel rounds
// queries and probabilities to the cache's bfloat16, of that. To first order:
//   a score   s = scale q.k errs by d = (u_q + (key_dim + 4) u) scale sum|q k|; a soft cap does not
//             enlarge that (its slope is at most 1) and adds 8 u of the cap
//   a weight  p = e^(s - max) / sum errs by the factor 1 + 2 d + u_p + 2 e, e = 4 u for exp itself
//             plus 2 u (|s| + |max|) for its argument
//   an output sum p v errs by that factor plus (context + 4) u for the sums, times sum p |v|
// If the cache holds int8, a row of queries may be rounded by half a step of its largest by 127
// or 16383; and the weights of a strip times the values' scales by half a step of up to twice the
// largest weight times the largest scale, by 65535 or 16383.
struct Roundoff {
  double relative = 0;                  // of queries and weights
  double of_query = 0, of_weights = 0;  // of the largest
  bool rounds() const { return relative > 0 || of_weights > 0; }
};

// The tokens that a row attends to, as the cache holds them.
struct CachedTokens {
  const float *k, *v, *value_scales;  // [tokens][key_dim], [tokens][value_dim], [tokens]
  size_t key_dim, value_dim;
  float scale, soft_cap;  // of the scores, as in AttentionArgs
};

struct RowReference {
  std::vector<double> exact, bound;       // [value_dim]
  double log_sum = 0, log_sum_bound = 0;  // of e^score, the sink's included
};

// The scores of tokens [begin, end), their largest error on top.
inline std::vector<double> ExactScores(const CachedTokens& tokens, const float* q, size_t begin,
                                       size_t end, Roundoff roundoff, double& error) {
  const double u = 0x1p-24, cap = tokens.soft_cap, scale = tokens.scale;
  double largest = 0;
  for (size_t d = 0; d < tokens.key_dim; ++d) largest = std::max<double>(largest, std::abs(q[d]));
  std::vector<double> scores;
  for (size_t p = begin; p < end; ++p) {
    const float* k = tokens.k + p * tokens.key_dim;
    double magnitude = 0, score = 0, keys = 0;
    for (size_t d = 0; d < tokens.key_dim; ++d) {
      keys += std::abs(k[d]) * scale;
      const double product = static_cast<double>(q[d]) * k[d];
      score += product * scale;
      magnitude += std::abs(product) * scale;
    }
    const double depth = static_cast<double>(tokens.key_dim) + 4;
    if (cap > 0) score = cap * std::tanh(score / cap);
    scores.push_back(score);
    error = std::max(error, (roundoff.relative + depth * u) * magnitude +
                                roundoff.of_query * largest * keys + 2 * u * std::abs(score) +
                                8 * u * cap);
  }
  return scores;
}

// One row over tokens [begin, end), of which there is at least one.
inline RowReference ExactRow(const CachedTokens& tokens, const float* q, size_t begin, size_t end,
                             double sink, Roundoff roundoff) {
  const double u = 0x1p-24;
  double error = 0;
  std::vector<double> weights = ExactScores(tokens, q, begin, end, roundoff, error);
  const double max = std::max(sink, *std::max_element(weights.begin(), weights.end()));
  double sum = std::exp(sink - max);
  for (double& weight : weights) sum += weight = std::exp(weight - max);
  const double largest = *std::max_element(weights.begin(), weights.end()) / sum *
                         *std::max_element(tokens.value_scales + begin, tokens.value_scales + end);
  const double exponential = 2 * u * (4 + 2 * std::abs(max));
  const double summed = (static_cast<double>(end - begin) + 4) * u;
  const double factor = 2 * error + roundoff.relative + exponential + summed;
  RowReference row;
  row.log_sum = max + std::log(sum);
  row.log_sum_bound = 1.01 * (error + exponential + summed + 2 * u * std::abs(row.log_sum));
  std::vector<double> magnitude(tokens.value_dim), codes(tokens.value_dim);
  row.exact.resize(tokens.value_dim);
  for (size_t p = begin; p < end; ++p) {
    const double weight = weights[p - begin] / sum, value_scale = tokens.value_scales[p];
    const float* values = tokens.v + p * tokens.value_dim;
    for (size_t d = 0; d < tokens.value_dim; ++d) {
      const double term = weight * values[d];
      row.exact[d] += term;
      magnitude[d] += std::abs(term);
    }
    if (roundoff.of_weights > 0 && value_scale > 0)
      for (size_t d = 0; d < tokens.value_dim; ++d) codes[d] += std::abs(values[d]) / value_scale;
  }
  for (size_t d = 0; d < tokens.value_dim; ++d)
    row.bound.push_back(1.01 * (factor * magnitude[d] + roundoff.of_weights * largest * codes[d]));
  return row;
}

struct Reference {
  std::vector<double> exact, bound;  // [rows][value_dim]
};

inline Reference Exact(const Scene& scene, Roundoff roundoff) {
  const Shape& s = scene.shape;
  const CachedTokens tokens = {scene.k.data(), scene.v.data(), scene.value_scales.data(),
                               s.key_dim,      s.value_dim,    scene.scale(),
                               s.soft_cap};
  Reference result;
  for (size_t row = 0; row < scene.rows(); ++row) {
    const int64_t position = scene.positions[row / s.group];
    const auto begin = static_cast<size_t>(std::max(s.first_seen, position - s.window + 1));
    const auto end = static_cast<size_t>(std::min(s.context_end, position + 1));
    const double sink = s.sinks ? static_cast<double>(scene.sinks[row % s.group]) : -INFINITY;
    const float* q = scene.q_rows[row / s.group] + row % s.group * s.key_dim;
    const RowReference one = ExactRow(tokens, q, begin, end, sink, roundoff);
    result.exact.insert(result.exact.end(), one.exact.begin(), one.exact.end());
    result.bound.insert(result.bound.end(), one.bound.begin(), one.bound.end());
  }
  return result;
}

// Only these paths multiply bfloat16 by bfloat16 in attention.
inline Roundoff OperandRoundoff(Isa isa, KvDtype cache) {
  if (cache == KvDtype::kI8 && isa == Isa::kScalar) return {};
  if (cache == KvDtype::kI8)
    return isa >= Isa::kAvx512Bf16 ? Roundoff{.of_query = 0.5 / 127, .of_weights = 1.0 / 65535}
                                   : Roundoff{.of_query = 0.5 / 16383, .of_weights = 1.0 / 16383};
  const bool rounds = cache == KvDtype::kBf16 || IsScaled(cache);
  return {.relative = isa >= Isa::kAvx512Bf16 && rounds ? UnitRoundoff(Dtype::kBf16) : 0};
}

}  // namespace pinion::kernels::testing
