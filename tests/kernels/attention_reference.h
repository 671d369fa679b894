#pragma once

// What attention must compute: in double, with a bound on what the kernels' arithmetic may change.

#include <algorithm>

#include "tests/kernels/attention_scene.h"

namespace pinion::kernels::testing {

// Textbook attention in double, with a bound on what float32 (and, where the kernel rounds queries
// and probabilities to the cache's bfloat16, that) may change. To first order:
//   a score   s = scale q.k errs by d = (u_q + (key_dim + 4) u) scale sum|q k|; a soft cap does not
//             enlarge that (its slope is at most 1) and adds 8 u of the cap
//   a weight  p = e^(s - max) / sum errs by the factor 1 + 2 d + u_p + 2 e, e = 4 u for exp itself
//             plus 2 u (|s| + |max|) for its argument
//   an output sum p v errs by that factor plus (context + 4) u for the sums, times sum p |v|
// Where the cache holds int8, a row of queries may be rounded by half a step of its largest by 127
// or 16383; and the weights of a strip times the values' scales by half a step of up to twice the
// largest weight times the largest scale, by 65535 or 16383.
struct Reference {
  std::vector<double> exact, bound;  // [rows][value_dim]
};

struct Roundoff {
  double relative = 0;                  // of queries and weights
  double of_query = 0, of_weights = 0;  // of the largest
};

// One row's scores, their largest error on top.
inline std::vector<double> ExactScores(const Scene& scene, size_t row, size_t begin, size_t end,
                                       Roundoff roundoff, double& error) {
  const Shape& s = scene.shape;
  const float* q = scene.q_rows[row / s.group] + row % s.group * s.key_dim;
  const double u = 0x1p-24, cap = s.soft_cap;
  double largest = 0;
  for (size_t d = 0; d < s.key_dim; ++d) largest = std::max<double>(largest, std::abs(q[d]));
  std::vector<double> scores;
  for (size_t p = begin; p < end; ++p) {
    double magnitude = 0, score = 0, keys = 0;
    for (size_t d = 0; d < s.key_dim; ++d) {
      keys += std::abs(scene.k[p * s.key_dim + d]) * static_cast<double>(scene.scale());
      const double product = static_cast<double>(q[d]) * scene.k[p * s.key_dim + d];
      score += product * scene.scale();
      magnitude += std::abs(product) * scene.scale();
    }
    const double depth = static_cast<double>(s.key_dim) + 4;
    if (cap > 0) score = cap * std::tanh(score / cap);
    scores.push_back(score);
    error = std::max(error, (roundoff.relative + depth * u) * magnitude +
                                roundoff.of_query * largest * keys + 2 * u * std::abs(score) +
                                8 * u * cap);
  }
  return scores;
}

inline Reference Exact(const Scene& scene, Roundoff roundoff) {
  const Shape& s = scene.shape;
  const double u = 0x1p-24;
  Reference result;
  for (size_t row = 0; row < scene.rows(); ++row) {
    const int64_t position = scene.positions[row / s.group];
    const auto begin = static_cast<size_t>(std::max<int64_t>(0, position - s.window + 1));
    const auto end = static_cast<size_t>(std::min(s.context_end, position + 1));
    double error = 0;
    std::vector<double> weights = ExactScores(scene, row, begin, end, roundoff, error);
    const double sink = s.sinks ? static_cast<double>(scene.sinks[row % s.group]) : -INFINITY;
    const double max = std::max(sink, *std::max_element(weights.begin(), weights.end()));
    double sum = std::exp(sink - max);
    for (double& weight : weights) sum += weight = std::exp(weight - max);
    const double largest = *std::max_element(weights.begin(), weights.end()) / sum *
                           *std::max_element(&scene.value_scales[begin], &scene.value_scales[end]);
    const double factor = 2 * error + roundoff.relative + 2 * u * (4 + 2 * std::abs(max)) +
                          (static_cast<double>(end - begin) + 4) * u;
    for (size_t d = 0; d < s.value_dim; ++d) {
      double out = 0, magnitude = 0, codes = 0;
      for (size_t p = begin; p < end; ++p) {
        codes +=
            std::abs(scene.v[p * s.value_dim + d]) / static_cast<double>(scene.value_scales[p]);
        const double term = weights[p - begin] / sum * scene.v[p * s.value_dim + d];
        out += term;
        magnitude += std::abs(term);
      }
      result.exact.push_back(out);
      result.bound.push_back(1.01 * (factor * magnitude + roundoff.of_weights * largest * codes));
    }
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
