#include "engine/decoder/choose_tokens.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace pinion {
namespace {

float Comparable(float score) {
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

}  // namespace

void ChooseTokens(const float* scores, size_t n, size_t k, int32_t* dst,
                  std::vector<float>& scratch) {
  if (k == 0) return;
  scratch.resize(n);
  std::transform(scores, scores + n, scratch.begin(), Comparable);
  const auto last = scratch.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(scratch.begin(), last, scratch.end(), std::greater<>());
  const float least = *last;
  // All that are larger, and as many of its equals as there is room for.
  auto equals = k - static_cast<size_t>(std::count_if(scratch.begin(), last,
                                                      [&](float score) { return score > least; }));
  for (size_t i = 0; i < n; ++i) {
    const float score = Comparable(scores[i]);
    if (score < least || (score == least && equals == 0)) continue;
    equals -= score == least ? 1 : 0;
    *dst++ = static_cast<int32_t>(i);
  }
}

}  // namespace pinion
