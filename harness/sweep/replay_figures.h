#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "harness/stats/block_bootstrap.h"

// The figures of many replays of one recorded series, with the precision that so short a series
// allows.

namespace pinion::harness {

// The end of one replay; of several objectives, the worst.
struct ReplayEnding {
  size_t offset = 0;                // row of the series that its first trial took
  int crowned = 0, ended_with = 0;  // candidates; 0: the default
  double crowned_log_truth = 0;     // true speed of the crowned one beside the default's
  bool crowned_small = false;       // by an estimate within its own floor or epsilon
  bool default_best = false;        // everything else was called worse
  bool false_best = false;          // that, and another configuration is as fast as the default
  bool undecided = false;           // too few rounds for a verdict
  bool unspent = false;             // that, with time left for a round of two
  std::optional<bool> covered;      // the truth, by the interval of the verdict
  double regret = 0;                // of the recommendation: 1 - speed / best speed
  double trials = 0;
  double cost = 0;     // trials, of 20 rounds of all contestants
  double overrun = 0;  // seconds beyond the budget, a fraction of it
  double floor = 0;
};

// How much of the series one replay uses.
struct SeriesUse {
  size_t rows = 0;
  double rows_per_sweep = 0;  // median
  double stretches = 0;       // sweeps that fit side by side, which are independent
};

// One figure over all replays that have it, and its 95 % interval by blocks of the series.
struct ReplayFigure {
  std::string name, title;
  BlockMean mean;
  double effective_replays = 0;  // independent ones that would say as much
  Interval interval;
};

struct SeriesFigures {
  SeriesUse use;
  std::vector<ReplayFigure> figures;
  const ReplayFigure* Find(const std::string& name) const;  // null: no replay has it
};

// `endings`: one or more, of a series with `rows` rows; `best_log_truth`: of all configurations,
// beside the default's. Shares: `false_crowns` (of one that is not better than the default),
// `worse_crowned`, `small_crowned` (by an estimate within its floor or epsilon), `found` (the best
// was crowned; if one is better than the default), `default_best`, `false_best`, `coverage` (of
// confirmations), `within_2_percent` (of the best), `budget_kept` (to 5 %), `undecided`, `unspent`.
// `cost` is a mean. An event in too few replays to show how it spreads over the series is taken to
// spread as badly as the worst of the other shares; if none can tell, the stretches alone count as
// observations.
SeriesFigures FiguresOf(const std::vector<ReplayEnding>& endings, size_t rows,
                        double best_log_truth);

}  // namespace pinion::harness
