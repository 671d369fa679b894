#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace pinion::harness {

// One trial of a round: its contestant, and its log score (more is better).
struct TrialScore {
  size_t contestant = 0;
  double log_score = 0;
};
// In the order of measurement; a contestant may occur twice, or not at all.
using ScoredRound = std::vector<TrialScore>;

// A contestant's effect on its scores, as estimated from them.
struct Effect {
  double log_score = 0;  // relative to the other contestants
  // Weight of the trials behind it; an outlier counts for little. 0: never measured.
  double trials = 0;
};

// Scores without the machine's drift. A score is modelled as the sum of its contestant's effect,
// its round's level and of noise that neighbours in time share: if the trials just before and after
// deviate in the same direction, part of their common deviation is in this score too. The share is
// fitted to the scores; it is 0 if neighbours share nothing. A single spike moves
// no neighbour. Effects, levels, the share and the noise's scale are fitted in turn, since each
// depends on the others.
// Source: nearest-neighbour adjustment of field trials (Papadakis 1937; Bartlett, JRSS B 40, 1978),
// with the neighbours' agreement in place of their mean.
struct Detrended {
  std::vector<Effect> effects;      // by contestant
  std::vector<ScoredRound> rounds;  // the scores without drift
  double share = 0;                 // of the neighbours' common deviation, in [0, 1]
  double scale = 0;  // of the noise left (Student's t); 0 if no contestant was measured twice
};
Detrended WithoutDrift(std::span<const ScoredRound> rounds, size_t contestants);

// Degrees of freedom of the noise, modelled as Student's t: its heavy tails keep one spike from
// deciding anything.
inline constexpr double kFreedom = 4;

// Location of a sample under such noise of a known scale (iteratively reweighted least squares),
// and the weight of its values.
Effect RobustLocation(std::span<const double> values, double scale);

}  // namespace pinion::harness
