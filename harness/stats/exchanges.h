#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "harness/stats/estimate.h"

namespace pinion::harness {

// Two trials of a round, one of each side: their log scores (more is better), and whether the
// second side ran first.
struct ScoredPair {
  double first = 0, second = 0;
  bool second_ran_first = false;
};

// The second side against the first, in logs.
struct PairComparison {
  size_t rounds = 0;
  double log_ratio = 0;              // its lead; above 0: it is better
  std::optional<Interval> interval;  // of the lead; none if the rounds are too few
};

// Compares two configurations by rounds of two trials in random order; `pairs` is in the order of
// measurement. Trials are compared with those of the other side close by in time, kNeighbours to
// each side and the closer the more, so that drift beyond a few trials cancels, and only by which
// one was faster, so that one spike counts as one trial.
//
// The lead is the one at which as many weighted comparisons go either way: their weighted median.
// The test of a lead uses nothing but the order being random within each round: without that lead
// the two would be the same, and exchanging them in any round as likely. It rejects a lead if in at
// most 1 - level of all 2^rounds exchanges the comparisons favour a side by as much, which is exact
// in any noise, also if that drifts, jumps, or disturbs half of the trials. The interval has the
// leads that are not rejected.
// Sources: Fisher, The Design of Experiments (1935), ch. 3; Hodges and Lehmann, Annals of
// Mathematical Statistics 34 (1963), for the estimate and interval of a rank test.
PairComparison ComparePairs(std::span<const ScoredPair> pairs, double level);

// The fewest rounds in which a test at this level can tell anything: all 2^rounds exchanges but two
// must be less extreme.
size_t LeastPairs(double level);

}  // namespace pinion::harness
