#include "harness/sweep/schedule.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "harness/stats/rules.h"

namespace pinion::harness {

std::vector<Slot> RoundOrder(const std::vector<int>& candidates, uint64_t seed, Phase phase,
                             int round, int baseline_runs) {
  std::vector<Slot> order;
  for (int copy = baseline_runs - 1; copy > 0; --copy) order.push_back({0, copy, phase, round});
  for (int candidate : candidates) order.push_back({candidate, 0, phase, round});
  std::mt19937_64 random(RoundSeed(seed, phase, round));
  // Fisher-Yates by hand: std::shuffle draws differently in every standard library, and --resume
  // must draw the same with any of them.
  for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
  return order;
}

uint64_t RoundSeed(uint64_t seed, Phase phase, int round) {
  // Below 2^53, so that JSON readers with only doubles keep it exact.
  constexpr uint64_t kRounds = 1 << 18, kPhases = 4;
  return ((seed % (uint64_t{1} << 32)) * kRounds + static_cast<uint64_t>(round)) * kPhases +
         static_cast<uint64_t>(phase);
}

void Spending::Add(int candidate, double seconds, double once_s) {
  spent_s_ += seconds;
  for (Sum* sum : {&all_, &by_candidate_[candidate]}) {
    sum->seconds += seconds - once_s;
    sum->squares += (seconds - once_s) * (seconds - once_s);
    ++sum->trials;
  }
}

double Spending::mean_s() const { return all_.trials ? all_.mean() : 0; }

double Spending::Spread() const {
  double squares = 0;
  size_t degrees = 0;
  for (const auto& [candidate, own] : by_candidate_) {
    if (own.seconds <= 0) continue;
    squares += std::max(0.0, own.squares / (own.mean() * own.mean()) - own.trials);
    degrees += static_cast<size_t>(own.trials - 1);
  }
  return degrees > 0 ? std::sqrt(squares / static_cast<double>(degrees)) : 0;
}

double Spending::AtMost(double trials) const {
  if (all_.trials == 0 || trials <= 0) return trials;
  return trials * (1 + kSpareErrors * Spread() * std::sqrt(1 / trials + 1.0 / all_.trials));
}

double Spending::Expected(int candidate) const {
  const auto own = by_candidate_.find(candidate);
  return own == by_candidate_.end() ? mean_s() : own->second.mean();
}

double Spending::RoundSeconds(const std::vector<int>& candidates) const {
  double seconds = (baseline_runs_ - 1) * Expected(0);
  for (const int candidate : candidates) seconds += Expected(candidate);
  return seconds;
}

// Of the budget; the rest is for the calibration and for trials that last longer than their limit.
constexpr double kRacedShare = 0.8;

double TrialLimitSeconds(const Definition& definition, size_t contestants) {
  if (definition.trial_limit_s) return *definition.trial_limit_s;
  constexpr int kConfirmationTrials = 30;  // 10 rounds of three
  const double trials =
      static_cast<double>(contestants) * std::min(definition.rounds, kUsualRounds) +
      kConfirmationTrials;
  return std::clamp(kRacedShare * definition.budget_s / trials, 8.0, kMostTrialSeconds);
}

double MostSearchSeconds(const Definition& definition, size_t contestants) {
  const double trials = static_cast<double>(kMinSamples * contestants);
  return std::min(kRacedShare * definition.budget_s / trials, kMostTrialSeconds);
}

}  // namespace pinion::harness
