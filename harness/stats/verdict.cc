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

// The best but the anchor. Few rounds lie more easily: where the race has an estimate, that counts.
const PairedSeries* BestByEstimate(const VerdictInput& input) {
  if (input.leader)
    if (const PairedSeries* leader = Find(input, *input.leader)) return leader;
  const PairedSeries* best = nullptr;
  double best_median = 0;
  for (const PairedSeries& series : input.contestants) {
    if (series.log_ratios.empty()) continue;
    const double median =
        series.to_anchor ? series.to_anchor->estimate : Median(Values(series.log_ratios));
    if (!best || median > best_median) {
      best = &series;
      best_median = median;
    }
  }
  return best;
}

double FloorFor(const VerdictInput& input, size_t n) {
  return NoiseFloor(input.anchor_log_ratios, n);
}

const PairedSeries* ChooseSeries(const VerdictInput& input) {
  const PairedSeries* best = BestByEstimate(input);
  if (!best || input.leader == input.anchor) return nullptr;
  const PairedSeries* chosen = best;
  for (const PairedSeries& series : input.contestants) {
    if (series.standing != Standing::kIn) continue;
    if (std::tie(series.settings_off_default, series.cores) >=
        std::tie(chosen->settings_off_default, chosen->cores))
      continue;
    const Estimate own = EstimateRatio(Values(series.log_ratios));
    const double floor = FloorFor(input, own.n);
    const Estimate behind = RatioBetween(best->log_ratios, series.log_ratios);
    const bool close = behind.n >= kMinSamples && behind.median * (1 + floor) >= 1;
    if (close && Beats(own, floor)) chosen = &series;
  }
  return chosen;
}

// Whether a series reaches to within the floor of the recommended one: by its interval or, with too
// few common rounds for one, by the race's. Fresh rounds against the anchor, which another
// objective may have asked for, tell more than those of the choice.
bool ReachesTo(const VerdictInput& input, const PairedSeries* winner, const PairedSeries& series,
               double floor) {
  const bool is_fresh = series.confirmation.size() >= kMinSamples;
  const Estimate behind =
      winner ? RatioBetween(winner->log_ratios, series.log_ratios)
             : EstimateRatio(Values(is_fresh ? series.confirmation : series.log_ratios));
  if (behind.interval) return behind.interval->high * (1 + floor) >= 1;
  if (series.standing == Standing::kWorse) return false;
  const bool against_leader = winner && input.leader == winner->candidate;
  const auto& gap = against_leader ? series.to_leader : series.to_anchor;
  return !gap || gap->high + std::log1p(floor) >= 0;
}

std::vector<int> TiedWith(const VerdictInput& input, int recommended, double floor) {
  std::vector<int> tied;
  const PairedSeries* winner = Find(input, recommended);
  for (const PairedSeries& series : input.contestants) {
    if (series.candidate == recommended || series.log_ratios.empty()) continue;
    if (ReachesTo(input, winner, series, floor)) tied.push_back(series.candidate);
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
  const std::string& anchor = input.anchor_name;
  const std::string floor = FloorSentence(verdict.floor);
  switch (verdict.outcome) {
    case Outcome::kNoData:
      return StrCat("no verdict: ", anchor, " was never measured");
    case Outcome::kTooFewRounds:
      return StrCat("not enough rounds to tell: ", verdict.rounds, " of at least ", kMinSamples,
                    best ? StrCat("; so far ", best->name, " is at ",
                                  Percent(verdict.best_ratio.median), " of ", anchor)
                         : std::string("; nothing else was measured"));
    case Outcome::kNoDifference:
      return StrCat("no difference found, simplest configuration recommended: ", anchor,
                    "; the best, ", best->name, ", is at ", WithInterval(verdict.best_ratio), "; ",
                    floor);
    case Outcome::kDefaultBest:
      return best ? StrCat(anchor, " is best; the next, ", best->name, ", is at ",
                           WithInterval(verdict.best_ratio), "; ", floor)
                  : StrCat(anchor, " is the only configuration that could be measured");
    case Outcome::kWinner:
      break;
  }
  return StrCat(
      Find(input, verdict.recommended)->name, " beats ", anchor, " by ",
      WithInterval(verdict.ratio),
      verdict.confirmed ? ", confirmed in fresh rounds" : ", not confirmed in fresh rounds", "; ",
      floor);
}

// Who is recommended, and why, once there are rounds enough.
void Judge(const VerdictInput& input, const PairedSeries& chosen, Verdict& verdict) {
  const bool confirmed = chosen.confirmation.size() >= kMinSamples;
  const ByRound& evidence = confirmed ? chosen.confirmation : chosen.log_ratios;
  const Estimate ratio = EstimateRatio(Values(evidence));
  verdict.rounds = evidence.size();
  verdict.confirmed = confirmed;
  verdict.floor = FloorFor(input, ratio.n);
  if (Beats(ratio, verdict.floor)) {
    verdict.outcome = Outcome::kWinner;
    verdict.recommended = chosen.candidate;
    verdict.ratio = ratio;
    return;
  }
  verdict.best_ratio = verdict.best == chosen.candidate ? ratio : verdict.best_ratio;
  const bool worse = IsWorse(ratio, verdict.floor);
  verdict.outcome = worse ? Outcome::kDefaultBest : Outcome::kNoDifference;
}

// The anchor leads: it is best where all others were shown to be worse.
void JudgeAnchor(const VerdictInput& input, Verdict& verdict) {
  const bool all_worse = std::all_of(
      input.contestants.begin(), input.contestants.end(), [&](const PairedSeries& series) {
        return series.standing == Standing::kWorse ||
               IsWorse(EstimateRatio(Values(series.log_ratios)), verdict.floor);
      });
  verdict.outcome = all_worse ? Outcome::kDefaultBest : Outcome::kNoDifference;
}

}  // namespace

const char* Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kWinner:
      return "winner";
    case Outcome::kDefaultBest:
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

Estimate EstimateRatio(std::span<const double> log_ratios) {
  std::vector<double> merged(log_ratios.begin(), log_ratios.end());
  if (merged.size() >= 20 && Lag1Autocorrelation(merged) > 0.3)
    merged = AdjacentPairMedians(merged);
  Estimate estimate = EstimateMedian(merged);
  estimate.median = std::exp(estimate.median);
  if (estimate.interval) {
    estimate.interval->low = std::exp(estimate.interval->low);
    estimate.interval->high = std::exp(estimate.interval->high);
  }
  return estimate;
}

double NoiseFloor(std::span<const double> anchor_log_ratios, size_t n) {
  if (anchor_log_ratios.size() < 3 || n == 0) return 0;
  constexpr int kResamples = 1000;  // the 95th percentile to about 1 % of itself
  std::mt19937 random(20261120);
  std::uniform_int_distribution<size_t> any(0, anchor_log_ratios.size() - 1);
  std::vector<double> medians, draw(n);
  for (int i = 0; i < kResamples; ++i) {
    for (double& value : draw) value = anchor_log_ratios[any(random)];
    medians.push_back(std::abs(MedianInPlace(draw)));
  }
  return std::expm1(Quantile(medians, 0.95));
}

std::optional<int> Choose(const VerdictInput& input) {
  const PairedSeries* chosen = ChooseSeries(input);
  return chosen ? std::optional(chosen->candidate) : std::nullopt;
}

Verdict Decide(const VerdictInput& input) {
  Verdict verdict;
  verdict.objective = input.objective;
  verdict.recommended = verdict.best = input.anchor;
  verdict.rounds = input.anchor_rounds;
  verdict.ratio = verdict.best_ratio = {input.anchor_rounds, 1, 0, std::nullopt};
  const PairedSeries* best = BestByEstimate(input);
  const bool anchor_leads = input.leader == input.anchor;
  if (best) verdict.best = best->candidate;
  const size_t confirmations = best ? best->confirmation.size() : 0;
  const size_t pairs = best ? best->log_ratios.size() : input.anchor_rounds;
  if (best) verdict.best_ratio = EstimateRatio(Values(best->log_ratios));
  verdict.floor = FloorFor(input, std::max({pairs, confirmations, kMinSamples}));
  const bool decided = anchor_leads ? input.race_over : confirmations >= kMinSamples;
  if (input.anchor_rounds == 0) {
    verdict.outcome = Outcome::kNoData;
  } else if (!decided && pairs < kMinSamples) {
    verdict.outcome = Outcome::kTooFewRounds;
    verdict.rounds = pairs;
  } else if (!best) {
    verdict.outcome = Outcome::kDefaultBest;
  } else {
    if (anchor_leads) {
      JudgeAnchor(input, verdict);
    } else {
      Judge(input, *ChooseSeries(input), verdict);
    }
    verdict.tied = TiedWith(input, verdict.recommended, verdict.floor);
  }
  verdict.sentence = Sentence(input, verdict, best);
  return verdict;
}

}  // namespace pinion::harness
