#include "harness/sweep/schedule.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "harness/stats/estimate.h"

namespace pinion::harness {

std::vector<Slot> RoundOrder(const std::vector<int>& candidates, uint64_t seed, int round,
                             bool confirmation) {
  std::vector<Slot> order = {{0, 1}};
  for (int candidate : candidates) order.push_back({candidate, 0});
  std::mt19937_64 random(RoundSeed(seed, round, confirmation));
  // Fisher-Yates by hand: std::shuffle's draws are the library's business, and --resume must draw
  // the same with another one.
  for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
  return order;
}

uint64_t RoundSeed(uint64_t seed, int round, bool confirmation) {
  // Below 2^53, so that JSON readers that know only reals keep it exact.
  constexpr uint64_t kRounds = 1 << 20;
  return (seed % (uint64_t{1} << 32)) * kRounds + static_cast<uint64_t>(round) * 2 +
         (confirmation ? 1 : 0);
}

double TrialLimitSeconds(const Definition& definition, size_t contestants) {
  if (definition.trial_limit_s) return *definition.trial_limit_s;
  const double trials = static_cast<double>(contestants) * definition.rounds;
  return std::clamp(0.8 * definition.budget_s / trials, 8.0, 120.0);
}

double MeanTrialSeconds(const std::vector<TrialRow>& trials) {
  double seconds = 0;
  for (const TrialRow& trial : trials) seconds += trial.seconds;
  return trials.empty() ? 0 : seconds / static_cast<double>(trials.size());
}

RoundPlan PlanRounds(const std::vector<TrialRow>& trials, size_t contestants, int rounds_done,
                     int wanted, double budget_s) {
  RoundPlan plan;
  double spent_s = 0;
  for (const TrialRow& trial : trials) spent_s += trial.seconds;
  plan.round_s = MeanTrialSeconds(trials) * static_cast<double>(contestants);
  plan.left_s = std::max(0.0, budget_s - spent_s);
  const int more = plan.round_s > 0 ? static_cast<int>(plan.left_s / plan.round_s) : wanted;
  plan.rounds = std::clamp(rounds_done + more, rounds_done, std::max(rounds_done, wanted));
  plan.enough = plan.rounds >= static_cast<int>(kMinSamples);
  const int missing = std::max(0, static_cast<int>(kMinSamples) - rounds_done);
  plan.enough_s = spent_s + missing * plan.round_s;
  return plan;
}

}  // namespace pinion::harness
