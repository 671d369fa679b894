#pragma once

#include <cstddef>

namespace pinion::harness {

// The constants of the harness's decisions, each with its reason; docs/verdicts.md lists them, and
// scripts/replays holds them to the promises. They were chosen on the series of tests/data/noise,
// those for comparisons on held_out/opt-125m-quiet.csv as well.

// Race: which configurations are worth a confirmation.
inline constexpr double kDroppedWrongly = 0.1;  // chance that any contestant better by epsilon is
                                                // dropped: at 0.05 a race costs more, its end is as
                                                // good
inline constexpr double kNotWorthIt = 0.04;    // a race ends below this chance that one better than
                                               // its leader is left; see the table in the docs
inline constexpr double kWorthScales = 0.6;    // smallest gain that a race looks for, in scales, if
                                               // that is more than epsilon: a recommendation must
                                               // exceed the floor, 0.8 scales after 9 rounds
inline constexpr double kNoisyScales = 2;      // noise beyond so many epsilon is much noise: two
                                               // rounds cannot tell its tails from differences
inline constexpr size_t kLeastRaceRounds = 2;  // before anything is decided
inline constexpr size_t kLeastRaceRoundsNoisy = 5;  // the same in much noise
inline constexpr size_t kLeastResiduals = 7;        // that the noise's scale must rest on

// Confirmation: fresh rounds of the chosen ones and the baseline.
inline constexpr size_t kMostConfirmed = 3;     // a fourth would need two more rounds of all
inline constexpr double kFamilyLevel = 0.032;   // chance of any wrong finding of a sweep, over all
                                                // candidates and objectives (Holm): six rounds that
                                                // agree show it, 2 * 2^-6. At 0.05 more than 0.5 %
                                                // of slightly worse candidates are recommended in
                                                // much noise
inline constexpr size_t kSpareRounds = 1;       // kept in the budget: trials may run slower than
                                                // expected
inline constexpr double kSpareErrors = 2;       // or so many standard errors of their time, if that
                                                // is more
inline constexpr double kFloorQuantile = 0.95;  // of the baseline's differences from itself

// Comparison of two (pinion compare): every round counts, and no choice is made among several.
inline constexpr double kPairLevel = 0.99;  // of its interval: at most one of a hundred pairs of
                                            // equal builds is told apart, in any noise
inline constexpr size_t kNeighbours = 3;    // trials to each side that one is compared with: one to
                                            // five find about as much

// The fewest rounds in which one of so many comparisons can be decided: all of them must agree, and
// 2 * 2^-n, the p-value of a sign test then, must reach the family's level for the first of them.
size_t LeastRoundsFor(size_t comparisons);

// The rounds of a confirmation of so many comparisons: one round may disagree.
size_t RoundsFor(size_t comparisons);

}  // namespace pinion::harness
