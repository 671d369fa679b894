#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/space/definition.h"
#include "harness/sweep/planted.h"
#include "harness/sweep/recording.h"
#include "harness/sweep/replay_figures.h"

// Sweeps without an engine: the protocol on recorded numbers, many times, with known truth.

namespace pinion::harness {

// How to replay. Of the definition: strategy, epsilon, rounds, seed (of the first replay) and
// budget, in trials of a second each; 0: that of an exhaustive comparison of 20 rounds.
struct ReplayOptions {
  Definition definition;
  int seeds = 1000;
};

// The result of all replays together.
struct ReplayReport {
  int seeds = 0;
  std::string default_name;
  std::vector<std::pair<std::string, int>> winners;  // crowned: all but the default, in their order
  int none = 0;                                      // none crowned
  int default_best = 0;                              // of those: everything else was called worse
  int undecided = 0;                                 // of those: too few rounds for a verdict
  int unspent = 0;  // of those: with time left for a round of the default and one other
  std::optional<double> interval_coverage;  // of the intervals that verdicts are printed with
  double regret_p95 = 0;          // 1 - speed / best speed, 95th percentile, of recommendations
  double cost_fraction_p50 = 0;   // trials, of 20 rounds of all contestants
  double budget_overrun_p95 = 0;  // seconds beyond the budget, a fraction of it
  double floor_p50 = 0;           // smallest resolvable difference, a fraction
  std::optional<SeriesFigures> by_blocks;  // of a series: its figures with their intervals
};

// Trial k of a replay takes row (offset + k) mod N of the recording as its noise, times the speed
// of its configuration; it lasts as long as that speed makes it, 1 s at the recording's median and
// 2 s at most, as live trials have their limit. With strategy pair (two configurations, one
// objective) the verdict is that of a comparison (pair.h), and the second one "worse" counts as the
// default called best.
Result<ReplayReport> ReplayPlanted(const Recording& recording, const Planted& planted,
                                   const ReplayOptions& options);

// Trials of a round are taken from one recorded round, whole rounds drawn at random; the truth is
// each candidate's median over all its rounds, times its planted speed. A candidate that was not
// measured in a round has the baseline's score there and its own ratio of another round. A trial
// lasts as long as one of its candidate's did, drawn at random. `planted` has the candidates of the
// recording (ParsePlantedOn).
Result<ReplayReport> ReplaySweep(const RecordedSweep& recorded, const Planted& planted,
                                 const ReplayOptions& options);

// {"seeds","winners":{"name":count,"none":count},"undecided","default_best","unspent",
//  "interval_coverage","regret_p95","cost_fraction_p50","budget_overrun_p95","floor_p50","default",
//  "series":{"rows","rows_per_sweep","stretches"},
//  "figures":{"name":{"mean","low","high","replays","effective_replays"},...}}; a recorded sweep
//  has
// rounds and no series: null, and no figures.
Json ToJson(const ReplayReport& report);
// The same for a person.
std::string Render(const ReplayReport& report);

}  // namespace pinion::harness
