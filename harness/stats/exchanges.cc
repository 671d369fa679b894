#include "harness/stats/exchanges.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "harness/stats/rules.h"

namespace pinion::harness {
namespace {

// Weights 1, 1/2 and 1/3 by distance, times six, so that sums are whole and can be counted exactly.
constexpr std::array<int, kNeighbours> kWeights = {6, 3, 2};
// Beyond so many rounds the sum of exchanged differences is normal for all purposes.
constexpr size_t kCountedRounds = 200;

struct Trial {
  double log_score = 0;
  bool is_second = false;
};

int Sign(double value) { return (value > 0) - (value < 0); }

// The trials of all rounds in the order of measurement.
class Sequence {
 public:
  explicit Sequence(std::span<const ScoredPair> pairs) {
    for (const ScoredPair& pair : pairs) {
      trials_.push_back({pair.second_ran_first ? pair.second : pair.first, pair.second_ran_first});
      trials_.push_back({pair.second_ran_first ? pair.first : pair.second, !pair.second_ran_first});
    }
  }

  // Of each round: by how much more the second side's trial is ahead of its neighbours than the
  // first one's, if the second side's scores are lowered by `lead`.
  std::vector<int> Differences(double lead) const {
    std::vector<int> ahead(trials_.size());
    for (size_t i = 0; i < trials_.size(); ++i)
      for (size_t d = 1; d <= kNeighbours && i + d < trials_.size(); ++d) {
        const int won = kWeights[d - 1] * Sign(Score(i + d, lead) - Score(i, lead));
        ahead[i + d] += won;
        ahead[i] -= won;
      }
    std::vector<int> differences;
    for (size_t i = 0; i < trials_.size(); i += 2)
      differences.push_back(trials_[i].is_second ? ahead[i] - ahead[i + 1]
                                                 : ahead[i + 1] - ahead[i]);
    return differences;
  }

  // A comparison of the two sides' trials that lie close together.
  struct Lead {
    double log_ratio = 0;
    int weight = 0;
  };
  std::vector<Lead> SortedLeads() const {
    std::vector<Lead> leads;
    for (size_t i = 0; i < trials_.size(); ++i)
      for (size_t d = 1; d <= kNeighbours && i + d < trials_.size(); ++d) {
        const Trial &before = trials_[i], &after = trials_[i + d];
        if (before.is_second == after.is_second) continue;
        const double lead = after.log_score - before.log_score;
        leads.push_back({after.is_second ? lead : -lead, kWeights[d - 1]});
      }
    std::sort(leads.begin(), leads.end(),
              [](const Lead& a, const Lead& b) { return a.log_ratio < b.log_ratio; });
    return leads;
  }

 private:
  double Score(size_t i, double lead) const {
    return trials_[i].log_score - (trials_[i].is_second ? lead : 0);
  }

  std::vector<Trial> trials_;
};

// The share of all signs of these terms whose sum is at least as far from 0 as theirs.
double ShareAsExtreme(const std::vector<int>& terms) {
  int64_t sum = 0, reach = 0, squares = 0;
  for (const int term : terms) {
    sum += term;
    reach += std::abs(term);
    squares += int64_t{term} * term;
  }
  if (sum == 0) return 1;
  if (terms.size() > kCountedRounds)
    return std::erfc(static_cast<double>(std::abs(sum)) /
                     std::sqrt(2 * static_cast<double>(squares)));
  // chance[s + reach] of each sum s, over the terms so far.
  std::vector<double> chance(static_cast<size_t>(2 * reach + 1)), next(chance.size());
  chance[static_cast<size_t>(reach)] = 1;
  int64_t so_far = 0;
  for (const int term : terms) {
    std::fill(next.begin(), next.end(), 0);
    for (int64_t s = -so_far; s <= so_far; ++s) {
      const double half = chance[static_cast<size_t>(s + reach)] / 2;
      if (half == 0) continue;
      next[static_cast<size_t>(s + term + reach)] += half;
      next[static_cast<size_t>(s - term + reach)] += half;
    }
    so_far += std::abs(term);
    chance.swap(next);
  }
  double share = 0;
  for (int64_t s = std::abs(sum); s <= reach; ++s)
    share += 2 * chance[static_cast<size_t>(s + reach)];
  return std::min(1.0, share);
}

double WeightedMedian(const std::vector<Sequence::Lead>& sorted) {
  int left = 0;
  for (const Sequence::Lead& one : sorted) left += one.weight;
  int below = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    below += sorted[i].weight;
    left -= sorted[i].weight;
    if (below > left) return sorted[i].log_ratio;
    if (below == left) return (sorted[i].log_ratio + sorted[i + 1].log_ratio) / 2;
  }
  return 0;
}

// The outermost of the sorted leads that the test does not reject. The result of the test changes
// at these alone, so it is made between them; from the middle outwards it rejects more and more.
std::optional<Interval> Accepted(const Sequence& sequence,
                                 const std::vector<Sequence::Lead>& sorted, double middle,
                                 double level) {
  const auto rejects = [&](double lead) {
    return ShareAsExtreme(sequence.Differences(lead)) <= 1 - level;
  };
  const double span = sorted.back().log_ratio - sorted.front().log_ratio + 1;
  if (!rejects(sorted.front().log_ratio - span) || !rejects(sorted.back().log_ratio + span))
    return std::nullopt;
  std::vector<double> leads;
  for (const Sequence::Lead& one : sorted)
    if (leads.empty() || one.log_ratio > leads.back()) leads.push_back(one.log_ratio);
  const auto between = [&](size_t i) { return (leads[i] + leads[i + 1]) / 2; };
  const auto at = std::lower_bound(leads.begin(), leads.end(), middle);
  // Below leads[low] the test rejects, above it not; the same above leads[high], mirrored.
  size_t low = 0, above = static_cast<size_t>(at - leads.begin());
  while (low < above) {
    const size_t half = low + (above - low) / 2;
    if (half + 1 < leads.size() && rejects(between(half)))
      low = half + 1;
    else
      above = half;
  }
  size_t high = leads.size() - 1, below = std::min(static_cast<size_t>(at - leads.begin()), high);
  while (below < high) {
    const size_t half = below + (high - below + 1) / 2;
    if (half > 0 && rejects(between(half - 1)))
      high = half - 1;
    else
      below = half;
  }
  return Interval{std::min(leads[low], middle), std::max(leads[high], middle), level};
}

}  // namespace

PairComparison ComparePairs(std::span<const ScoredPair> pairs, double level) {
  PairComparison found;
  found.rounds = pairs.size();
  if (pairs.empty()) return found;
  const Sequence sequence(pairs);
  const std::vector<Sequence::Lead> leads = sequence.SortedLeads();
  found.log_ratio = WeightedMedian(leads);
  found.interval = Accepted(sequence, leads, found.log_ratio, level);
  return found;
}

size_t LeastPairs(double level) {
  size_t rounds = 1;
  while (2 * std::pow(0.5, static_cast<double>(rounds)) > 1 - level) ++rounds;
  return rounds;
}

}  // namespace pinion::harness
