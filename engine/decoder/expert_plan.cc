#include "engine/decoder/expert_plan.h"

#include <algorithm>

namespace pinion {
namespace {

// Up to this many tokens, an expert is bound by reading its weights: fewer do not make it cheaper.
constexpr size_t kTokensPerRead = 8;
// With this many items per thread, threads wait at the end for at most a thirtieth of the time.
constexpr size_t kExpertItemsPerThread = 32;

size_t CostPerUnit(size_t tokens) { return std::max(tokens, kTokensPerRead); }

}  // namespace

void ExpertPlan::Build(const int32_t* chosen, size_t rows, size_t top_k, size_t experts) {
  top_k_ = top_k;
  const size_t count = rows * top_k;
  first_.assign(experts + 1, 0);
  for (size_t i = 0; i < count; ++i) ++first_[static_cast<size_t>(chosen[i]) + 1];
  touched_ = 0;
  for (size_t e = 0; e < experts; ++e) {
    touched_ += first_[e + 1] > 0;
    first_[e + 1] += first_[e];
  }
  choices_.resize(count);
  places_.resize(count);
  // A counting sort: filling moves each expert's start to its end, which is the next one's start.
  // The copy after the loop shifts the starts back.
  for (size_t i = 0; i < count; ++i) {
    const uint32_t place = first_[static_cast<size_t>(chosen[i])]++;
    choices_[place] = static_cast<uint32_t>(i);
    places_[i] = place;
  }
  std::copy_backward(first_.begin(), first_.end() - 1, first_.end());
  first_[0] = 0;
}

void ExpertPlan::Cut(size_t units, size_t threads, std::vector<ExpertItem>& items) const {
  items.clear();
  const size_t experts = first_.size() - 1;
  size_t total = 0;
  for (size_t e = 0; e < experts; ++e)
    if (tokens(e) > 0) total += units * CostPerUnit(tokens(e));
  const size_t wanted = std::max<size_t>(1, total / (threads * kExpertItemsPerThread));
  for (size_t e = 0; e < experts; ++e) {
    if (tokens(e) == 0) continue;
    const size_t pieces = std::clamp<size_t>(units * CostPerUnit(tokens(e)) / wanted, 1, units);
    for (size_t piece = 0; piece < pieces; ++piece) {
      const size_t begin = units * piece / pieces, end = units * (piece + 1) / pieces;
      items.push_back({static_cast<uint32_t>(e), static_cast<uint32_t>(begin),
                       static_cast<uint32_t>(end - begin)});
    }
  }
  const auto cost = [&](const ExpertItem& item) {
    return item.units * CostPerUnit(tokens(item.expert));
  };
  std::stable_sort(items.begin(), items.end(),
                   [&](const ExpertItem& a, const ExpertItem& b) { return cost(a) > cost(b); });
}

}  // namespace pinion
