#include "harness/stats/verdict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <tuple>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

std::vector<double> Values(const ByRound& by_round) {
  std::vector<double> values;
  for (const auto& [round, value] : by_round) values.push_back(value);
  return values;
}

// "+4.1 %" from a ratio of 1.041.
std::string Percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", (ratio - 1) * 100);
  return text;
}

std::string WithInterval(const Estimate& ratio) {
  if (!ratio.interval) return Percent(ratio.median);
  char coverage[32];
  std::snprintf(coverage, sizeof coverage, "%.0f %%", std::floor(ratio.interval->coverage * 100));
  return StrCat(Percent(ratio.median), " (", Percent(ratio.interval->low), " to ",
                Percent(ratio.interval->high), " at ", coverage, " confidence, ", ratio.n,
                " rounds)");
}

// Whether there are enough fresh rounds of a candidate, even if another objective asked for them.
bool IsConfirmed(const PairedSeries& series) { return series.confirmation.size() >= kMinSamples; }

// The level at which the best of `candidates`, none of which is better than the baseline, has an
// interval above 1 with a chance of at most 5 %: each of them may once in 20 * candidates
// (Bonferroni). An interval misses on two sides, hence 0.1.
double LevelForBestOf(size_t candidates) {
  return std::max(0.95, 1 - 0.1 / static_cast<double>(std::max<size_t>(1, candidates)));
}

// The rounds that an interval of that level needs: [min, max] misses with probability 2 * 2^-n.
size_t RoundsForBestOf(size_t candidates) {
  const double misses = 1 - LevelForBestOf(candidates);
  size_t rounds = kMinSamples;
  while (std::ldexp(2.0, -static_cast<int>(rounds)) > misses) ++rounds;
  return rounds;
}

// The rounds of the race that a verdict without fresh rounds needs.
size_t RoundsNeeded(const VerdictInput& input) {
  const bool baseline_leads = input.leader == input.baseline;
  return baseline_leads ? kMinSamples : RoundsForBestOf(input.contestants.size());
}

// The ratio to the baseline that decides on a candidate: from fresh rounds or, at the stricter
// level, from the rounds in which it was chosen as the best of all.
Estimate DecidingRatio(const VerdictInput& input, const PairedSeries& series) {
  if (IsConfirmed(series)) return EstimateRatio(Values(series.confirmation));
  return EstimateRatio(Values(series.log_ratios), LevelForBestOf(input.contestants.size()));
}

bool Beats(const Estimate& ratio, double floor) {
  return ratio.interval && ratio.interval->low > 1 && ratio.median > 1 + floor;
}

bool IsWorse(const Estimate& ratio, double floor) {
  return ratio.interval && ratio.interval->high < 1 && ratio.median < 1 / (1 + floor);
}

// b's ratio to a, over the rounds that both have.
Estimate RatioBetween(const ByRound& a, const ByRound& b) {
  std::vector<double> differences;
  for (const auto& [round, value] : b)
    if (const auto other = a.find(round); other != a.end())
      differences.push_back(value - other->second);
  return EstimateRatio(differences);
}

const PairedSeries* Find(const VerdictInput& input, int candidate) {
  for (const PairedSeries& series : input.contestants)
    if (series.candidate == candidate) return &series;
  return nullptr;
}

// The best candidate except the baseline. The race's estimate uses all trials, so it beats the
// median of a candidate's own rounds. But if the race was cut off with the baseline in the lead,
// fresh rounds are better evidence.
const PairedSeries* BestByEstimate(const VerdictInput& input) {
  if (input.leader)
    if (const PairedSeries* leader = Find(input, *input.leader)) return leader;
  const bool was_cut = input.leader == input.baseline && !input.race_over;
  const PairedSeries* best = nullptr;
  std::pair<bool, double> best_rank;  // fresh rounds, estimate
  for (const PairedSeries& series : input.contestants) {
    if (series.log_ratios.empty()) continue;
    const bool by_fresh = was_cut && IsConfirmed(series);
    const double estimate = by_fresh || !series.to_baseline
                                ? Median(Values(by_fresh ? series.confirmation : series.log_ratios))
                                : series.to_baseline->estimate;
    if (best && std::pair(by_fresh, estimate) <= best_rank) continue;
    best = &series;
    best_rank = {by_fresh, estimate};
  }
  return best;
}

double FloorFor(const VerdictInput& input, size_t n) {
  return NoiseFloor(input.baseline_log_ratios, n);
}

// The choice of the race's rounds: its leader (without a race, the best by its estimate) or, if
// others that are still in are within the floor of it and beat the baseline as well, the simplest
// of those. nullptr: no candidate has a round in common with the baseline, or the baseline leads.
const PairedSeries* ChooseSeries(const VerdictInput& input) {
  const PairedSeries* best = BestByEstimate(input);
  if (!best || input.leader == input.baseline) return nullptr;
  const PairedSeries* chosen = best;
  for (const PairedSeries& series : input.contestants) {
    if (series.status != RaceStatus::kIn) continue;
    if (std::tie(series.settings_off_default, series.cores) >=
        std::tie(chosen->settings_off_default, chosen->cores))
      continue;
    const Estimate own = DecidingRatio(input, series);
    const double floor = FloorFor(input, own.n);
    const Estimate behind = RatioBetween(best->log_ratios, series.log_ratios);
    const bool close = behind.n >= kMinSamples && behind.median * (1 + floor) >= 1;
    if (close && Beats(own, floor)) chosen = &series;
  }
  return chosen;
}

// The best candidate that beats the baseline in fresh rounds that another objective asked for and,
// if `chosen` beats the baseline too, also beats `chosen` in them. Another race selected it, so for
// this objective these rounds are fresh; the level accounts for looking at several candidates.
const PairedSeries* BetterInFreshRounds(const VerdictInput& input, const PairedSeries* chosen) {
  const auto beats_baseline = [&](const Estimate& ratio) {
    return Beats(ratio, FloorFor(input, ratio.n));
  };
  const double level = LevelForBestOf(static_cast<size_t>(
      std::count_if(input.contestants.begin(), input.contestants.end(), IsConfirmed)));
  const bool chosen_wins = chosen && beats_baseline(DecidingRatio(input, *chosen));
  const PairedSeries* best = nullptr;
  double best_median = 0;
  for (const PairedSeries& series : input.contestants) {
    if (&series == chosen || !IsConfirmed(series)) continue;
    const Estimate ratio = EstimateRatio(Values(series.confirmation), level);
    if (ratio.median <= best_median || !beats_baseline(ratio)) continue;
    if (chosen_wins && !beats_baseline(RatioBetween(chosen->confirmation, series.confirmation)))
      continue;
    best = &series;
    best_median = ratio.median;
  }
  return best;
}

// Whether a series comes within the floor of the recommended one: by its interval or, with too
// few common rounds for one, by the race's. Fresh rounds are preferred to those of the choice.
bool ReachesTo(const VerdictInput& input, const Verdict& verdict, const PairedSeries& series) {
  const PairedSeries* winner = Find(input, verdict.recommended);
  const bool both_fresh = winner && IsConfirmed(*winner) && IsConfirmed(series);
  const Estimate behind = !winner      ? EstimateRatio(Values(Evidence(series)))
                          : both_fresh ? RatioBetween(winner->confirmation, series.confirmation)
                                       : RatioBetween(winner->log_ratios, series.log_ratios);
  if (behind.interval) return behind.interval->high * (1 + verdict.floor) >= 1;
  if (series.status == RaceStatus::kWorse) return false;
  const bool against_leader = winner && input.leader == winner->candidate;
  const auto& gap = against_leader ? series.to_leader : series.to_baseline;
  // If the winner is not the race's leader, the gap is to the baseline: compare its upper end with
  // the\n  // lower end of the winner's own interval.
  const bool by_baseline = winner && !against_leader && verdict.ratio.interval;
  const double reach = by_baseline ? std::log(verdict.ratio.interval->low) : 0;
  return !gap || gap->high + std::log1p(verdict.floor) >= reach;
}

std::vector<int> TiedWith(const VerdictInput& input, const Verdict& verdict) {
  std::vector<int> tied;
  for (const PairedSeries& series : input.contestants) {
    if (series.candidate == verdict.recommended || series.log_ratios.empty()) continue;
    if (ReachesTo(input, verdict, series)) tied.push_back(series.candidate);
  }
  return tied;
}

std::string FloorSentence(double floor) {
  char text[80];
  std::snprintf(text, sizeof text, "differences below %.1f %% cannot be resolved here",
                floor * 100);
  return text;
}

std::string Sentence(const VerdictInput& input, const Verdict& verdict, const PairedSeries* best) {
  const std::string& baseline = input.baseline_name;
  const std::string floor = FloorSentence(verdict.floor);
  switch (verdict.outcome) {
    case Outcome::kNoData:
      return StrCat("no verdict: ", baseline, " was never measured");
    case Outcome::kTooFewRounds:
      return StrCat("not enough rounds to tell: ", verdict.rounds, " of at least ",
                    RoundsNeeded(input),
                    best ? StrCat("; so far ", best->name, " is at ",
                                  Percent(verdict.best_ratio.median), " of ", baseline)
                         : std::string("; nothing else was measured"));
    case Outcome::kNoDifference:
      return StrCat("no difference found, simplest configuration recommended: ", baseline,
                    "; the best, ", best->name, ", is at ", WithInterval(verdict.best_ratio), "; ",
                    floor);
    case Outcome::kBaselineBest:
      return best ? StrCat(baseline, " is best; the next, ", best->name, ", is at ",
                           WithInterval(verdict.best_ratio), "; ", floor)
                  : StrCat(baseline, " is the only configuration that could be measured");
    case Outcome::kWinner:
      break;
  }
  return StrCat(
      Find(input, verdict.recommended)->name, " beats ", baseline, " by ",
      WithInterval(verdict.ratio),
      verdict.confirmed ? ", confirmed in fresh rounds" : ", not confirmed in fresh rounds", "; ",
      floor);
}

// Decides on the chosen candidate once there are enough rounds.
void Judge(const VerdictInput& input, const PairedSeries& chosen, Verdict& verdict) {
  const Estimate ratio = DecidingRatio(input, chosen);
  verdict.rounds = Evidence(chosen).size();
  verdict.confirmed = IsConfirmed(chosen);
  verdict.floor = FloorFor(input, ratio.n);
  if (Beats(ratio, verdict.floor)) {
    verdict.outcome = Outcome::kWinner;
    verdict.recommended = chosen.candidate;
    verdict.ratio = ratio;
    return;
  }
  verdict.best_ratio = verdict.best == chosen.candidate ? ratio : verdict.best_ratio;
  const bool worse = IsWorse(ratio, verdict.floor);
  verdict.outcome = worse ? Outcome::kBaselineBest : Outcome::kNoDifference;
}

// For a race that the baseline leads: it is best if all others were shown to be worse.
void JudgeBaseline(const VerdictInput& input, const PairedSeries& best, Verdict& verdict) {
  verdict.confirmed = IsConfirmed(best);
  if (verdict.confirmed) verdict.rounds = best.confirmation.size();
  const bool all_worse = std::all_of(
      input.contestants.begin(), input.contestants.end(), [&](const PairedSeries& series) {
        return series.status == RaceStatus::kWorse ||
               IsWorse(EstimateRatio(Values(Evidence(series))), verdict.floor);
      });
  verdict.outcome = all_worse ? Outcome::kBaselineBest : Outcome::kNoDifference;
}

}  // namespace

const char* Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kWinner:
      return "winner";
    case Outcome::kBaselineBest:
      return "default_best";
    case Outcome::kNoDifference:
      return "no_difference";
    case Outcome::kTooFewRounds:
      return "too_few_rounds";
    case Outcome::kNoData:
      return "no_data";
  }
  return "";
}

const ByRound& Evidence(const PairedSeries& series) {
  return IsConfirmed(series) ? series.confirmation : series.log_ratios;
}

Estimate EstimateRatio(std::span<const double> log_ratios, double level) {
  std::vector<double> merged(log_ratios.begin(), log_ratios.end());
  if (merged.size() >= 20 && Lag1Autocorrelation(merged) > 0.3)
    merged = AdjacentPairMedians(merged);
  Estimate estimate = EstimateMedian(merged, level);
  estimate.median = std::exp(estimate.median);
  if (estimate.interval) {
    estimate.interval->low = std::exp(estimate.interval->low);
    estimate.interval->high = std::exp(estimate.interval->high);
  }
  return estimate;
}

double NoiseFloor(std::span<const double> baseline_log_ratios, size_t n) {
  if (baseline_log_ratios.size() < 3 || n == 0) return 0;
  constexpr int kResamples = 1000;  // the 95th percentile to about 1 % of itself
  std::mt19937 random(20261120);
  std::uniform_int_distribution<size_t> any(0, baseline_log_ratios.size() - 1);
  std::vector<double> medians, draw(n);
  for (int i = 0; i < kResamples; ++i) {
    for (double& value : draw) value = baseline_log_ratios[any(random)];
    medians.push_back(std::abs(MedianInPlace(draw)));
  }
  return std::expm1(Quantile(medians, 0.95));
}

Verdict Decide(const VerdictInput& input) {
  Verdict verdict;
  verdict.objective = input.objective;
  verdict.recommended = verdict.best = input.baseline;
  verdict.rounds = input.baseline_rounds;
  verdict.ratio = verdict.best_ratio = {input.baseline_rounds, 1, 0, std::nullopt};
  const bool baseline_leads = input.leader == input.baseline;
  const PairedSeries* best = BestByEstimate(input);
  const PairedSeries* chosen = baseline_leads ? nullptr : ChooseSeries(input);
  if (const PairedSeries* other = BetterInFreshRounds(input, chosen)) best = chosen = other;
  const size_t pairs = best ? best->log_ratios.size() : input.baseline_rounds;
  if (best) verdict.best = best->candidate;
  if (best) verdict.best_ratio = EstimateRatio(Values(Evidence(*best)));
  verdict.floor = FloorFor(input, std::max({pairs, verdict.best_ratio.n, kMinSamples}));
  const bool enough = (baseline_leads && input.race_over) || pairs >= RoundsNeeded(input);
  if (input.baseline_rounds == 0) {
    verdict.outcome = Outcome::kNoData;
  } else if (!enough && !(best && IsConfirmed(*best))) {
    verdict.outcome = Outcome::kTooFewRounds;
    verdict.rounds = pairs;
  } else if (!best) {
    verdict.outcome = Outcome::kBaselineBest;
  } else {
    if (chosen) {
      Judge(input, *chosen, verdict);
    } else {
      JudgeBaseline(input, *best, verdict);
    }
    verdict.tied = TiedWith(input, verdict);
  }
  verdict.sentence = Sentence(input, verdict, best);
  return verdict;
}

}  // namespace pinion::harness
