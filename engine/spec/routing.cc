#include "engine/spec/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Added to a sum of sigmoids, which may all be 0, before dividing by it; DeepSeek's own value.
constexpr float kTiny = 1e-20f;

// The indices of the k largest keys, largest first; of equal keys, the lower index first.
void TakeLargest(const std::vector<float>& keys, size_t k, std::vector<int32_t>& order) {
  order.resize(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(k), order.end(),
                    [&](int32_t a, int32_t b) {
                      const float x = keys[static_cast<size_t>(a)];
                      const float y = keys[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
}

// x[i] becomes e^(x[i] - max); returns their sum.
float Exponentiate(float* x, size_t n) {
  const float max = *std::max_element(x, x + n);
  float sum = 0;
  for (size_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - max);
  return sum;
}

}  // namespace

Status CheckRouter(const RouterSpec& spec) {
  if (spec.groups < 1 || spec.experts % spec.groups != 0)
    return Fail(ErrorCode::kCorrupt,
                StrCat("'n_group' is ", spec.groups, ", want a divisor of the number of experts, ",
                       spec.experts));
  if (spec.top_groups < 1 || spec.top_groups > spec.groups)
    return Fail(ErrorCode::kCorrupt, StrCat("'topk_group' is ", spec.top_groups,
                                            ", want 1 to 'n_group', ", spec.groups));
  const int allowed = spec.experts / spec.groups * spec.top_groups;
  if (spec.top_k < 1 || spec.top_k > allowed)
    return Fail(ErrorCode::kCorrupt, StrCat("'num_experts_per_tok' is ", spec.top_k, ", want 1 to ",
                                            allowed, ", the number of experts to choose from"));
  return {};
}

TokenRouter::TokenRouter(const RouterSpec& spec)
    : spec_(spec), scores_(static_cast<size_t>(spec.experts)) {}

void TokenRouter::Route(const float* logits, const float* correction, int32_t* chosen,
                        float* weights) {
  Score(logits);
  keys_ = scores_;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (correction) keys_[i] += correction[i];
    if (std::isnan(keys_[i])) keys_[i] = kMinusInfinity;  // sorting needs a strict order
  }
  if (spec_.top_groups < spec_.groups) DropWeakGroups();
  const auto k = static_cast<size_t>(spec_.top_k);
  TakeLargest(keys_, k, order_);
  std::copy_n(order_.begin(), k, chosen);
  // The correction decides the choice only: weights come from the scores without it.
  for (size_t i = 0; i < k; ++i) weights[i] = scores_[static_cast<size_t>(chosen[i])];
  Weigh(weights);
}

void TokenRouter::Score(const float* logits) {
  std::copy_n(logits, scores_.size(), scores_.begin());
  if (spec_.score == RouterScore::kSoftmax) {
    const float sum = Exponentiate(scores_.data(), scores_.size());
    for (float& score : scores_) score /= sum;
  } else if (spec_.score == RouterScore::kSigmoid) {
    for (float& score : scores_) score = 1 / (1 + std::exp(-score));
  }
}

// Excludes the experts outside the best groups from the choice.
void TokenRouter::DropWeakGroups() {
  const auto groups = static_cast<size_t>(spec_.groups);
  const size_t size = keys_.size() / groups;
  group_keys_.resize(groups);
  for (size_t g = 0; g < groups; ++g) {
    float best = kMinusInfinity, second = kMinusInfinity;
    for (size_t i = g * size; i < (g + 1) * size; ++i) {
      second = std::max(second, std::min(best, keys_[i]));
      best = std::max(best, keys_[i]);
    }
    const bool two = spec_.group_score == GroupScore::kTwoBest && size > 1;
    group_keys_[g] = two ? best + second : best;
  }
  TakeLargest(group_keys_, groups, order_);
  for (size_t i = static_cast<size_t>(spec_.top_groups); i < groups; ++i) {
    const auto begin = keys_.begin() + order_[i] * static_cast<ptrdiff_t>(size);
    std::fill_n(begin, size, kMinusInfinity);
  }
}

// Turns the scores of the chosen experts into weights.
void TokenRouter::Weigh(float* weights) const {
  const auto k = static_cast<size_t>(spec_.top_k);
  float divisor = 1;
  if (spec_.score == RouterScore::kLogit) {
    divisor = Exponentiate(weights, k);
  } else if (spec_.normalise) {
    divisor = std::accumulate(weights, weights + k, kTiny);
  }
  for (size_t i = 0; i < k; ++i) weights[i] = weights[i] / divisor * spec_.scale;
}

}  // namespace pinion
