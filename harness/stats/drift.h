#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace pinion::harness {

// One trial of a round: of which contestant, and its log score, more is better.
struct Scored {
  size_t contestant = 0;
  double log_score = 0;
};
// In the order in which they were measured; a contestant may be there twice, or not at all.
using ScoredRound = std::vector<Scored>;

// What scores say of one contestant.
struct Worth {
  double log_score = 0;  // relative to the others'
  // Trials that it rests on: one far from it counts for little. 0: never measured.
  double trials = 0;
};

// Scores without the machine's drift. A score is taken as the sum of its contestant's worth, of its
// round's level and of noise that neighbours in time share: where the trials just before and after
// are off in the same direction, part of what both are off by was there in between too. How large
// that part is, the scores themselves tell; it is 0 where neighbours share nothing. One spike moves
// no neighbour. Worths, levels, that share and the noise's scale are fitted in turn, since each
// needs the others.
// Source: nearest-neighbour adjustment of field trials (Papadakis 1937; Bartlett, JRSS B 40, 1978),
// with the neighbours' agreement in place of their mean.
struct Steady {
  std::vector<Worth> worths;        // by contestant
  std::vector<ScoredRound> rounds;  // as given, less drift
  double share = 0;                 // of what neighbours agree on, in [0, 1]
  double scale = 0;  // of a steady score's Student's t noise; 0 where nobody was measured twice
};
Steady WithoutDrift(std::span<const ScoredRound> rounds, size_t contestants);

// Noise is taken as Student's t with so many degrees of freedom: one spike is then no proof.
inline constexpr double kFreedom = 4;

// Location of a sample under such noise of a known scale, and what it rests on.
Worth RobustLocation(std::span<const double> values, double scale);

}  // namespace pinion::harness
