#include "harness/stats/verdict.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include "harness/stats/holm.h"
#include "harness/stats/rules.h"

namespace pinion::harness {
namespace {

std::vector<double> Values(const ByRound& by_round) {
  std::vector<double> values;
  for (const auto& [round, value] : by_round) values.push_back(value);
  return values;
}

// Whether there are enough fresh rounds of a candidate for an interval at 95 %.
bool IsConfirmed(const PairedSeries& series) { return series.confirmation.size() >= kMinSamples; }

// The best evidence on a candidate: fresh rounds if there are enough of them, else the race's.
const ByRound& Evidence(const PairedSeries& series) {
  return IsConfirmed(series) ? series.confirmation : series.log_ratios;
}

// One confirmed candidate in one objective.
struct Test {
  const PairedSeries* series;
  Estimate ratio;    // at the level of Holm's procedure
  double floor = 0;  // a fraction
  double bound = 0;  // a recommendation exceeds it: the floor or epsilon
  bool differs = false;

  bool is_better() const { return differs && ratio.median > 1; }
  bool wins() const { return is_better() && ratio.median > 1 + bound; }
};

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

double FloorFor(const VerdictInput& input, size_t n) {
  return NoiseFloor(input.baseline_log_ratios, n);
}

// By objective. Every confirmed candidate is tested in every objective.
std::vector<std::vector<Test>> TestsOf(const std::vector<VerdictInput>& objectives) {
  std::vector<double> p_values;
  for (const VerdictInput& input : objectives)
    for (const PairedSeries& series : input.contestants)
      if (!series.confirmation.empty())
        p_values.push_back(SignTest(MergeNeighbours(Values(series.confirmation))));
  const std::vector<Corrected> corrected = Holm(p_values, kFamilyLevel);
  auto next = corrected.begin();
  std::vector<std::vector<Test>> tests;
  for (const VerdictInput& input : objectives) {
    tests.emplace_back();
    for (const PairedSeries& series : input.contestants) {
      if (series.confirmation.empty()) continue;
      Test test{&series, EstimateRatio(Values(series.confirmation), next->level)};
      test.differs = next->rejected;
      test.floor = FloorFor(input, test.ratio.n);
      test.bound = std::max(test.floor, input.epsilon);
      tests.back().push_back(test);
      ++next;
    }
  }
  return tests;
}

// The best candidate except the baseline by the race alone. The race's estimate uses all trials, so
// it beats the median of a candidate's own rounds.
const PairedSeries* BestOfRace(const VerdictInput& input) {
  const PairedSeries* best = input.leader ? Find(input, *input.leader) : nullptr;
  if (best) return best;
  const auto estimate = [](const PairedSeries& series) {
    return series.to_baseline ? series.to_baseline->estimate : Median(Values(series.log_ratios));
  };
  for (const PairedSeries& series : input.contestants)
    if (!series.log_ratios.empty() && (!best || estimate(series) > estimate(*best))) best = &series;
  return best;
}

// The best of those that are better or, if none is, of all.
const Test* BestOf(const std::vector<Test>& tests) {
  const auto best = std::max_element(tests.begin(), tests.end(), [](const Test& a, const Test& b) {
    return std::pair(a.is_better(), a.ratio.median) < std::pair(b.is_better(), b.ratio.median);
  });
  return best == tests.end() ? nullptr : &*best;
}

// The best of those that win or, if others that win come within the floor of it, the simplest of
// those. nullptr: none wins.
const Test* WinnerOf(const std::vector<Test>& tests) {
  const Test* best = nullptr;
  for (const Test& test : tests)
    if (test.wins() && (!best || test.ratio.median > best->ratio.median)) best = &test;
  const Test* simplest = best;
  for (const Test& test : tests) {
    if (!test.wins() ||
        std::tie(test.series->settings_off_default, test.series->cores) >=
            std::tie(simplest->series->settings_off_default, simplest->series->cores))
      continue;
    const Estimate behind = RatioBetween(best->series->confirmation, test.series->confirmation);
    if (behind.median * (1 + test.floor) >= 1) simplest = &test;
  }
  return simplest;
}

// The rounds behind a comparison of two candidates: fresh ones if both have them.
std::pair<const ByRound*, const ByRound*> Common(const PairedSeries& a, const PairedSeries& b) {
  const bool fresh = IsConfirmed(a) && IsConfirmed(b);
  return {fresh ? &a.confirmation : &a.log_ratios, fresh ? &b.confirmation : &b.log_ratios};
}

// Whether a series cannot be told from the recommended one. It is clearly worse, as a winner is
// clearly better, if its whole interval is a loss and its estimate exceeds the floor. With too few
// common rounds for an interval the race's decides. Fresh rounds are preferred to those of the
// choice; against the baseline the interval is that of the corrected test, which is printed.
bool ReachesTo(const VerdictInput& input, const Verdict& verdict, const PairedSeries& series) {
  const PairedSeries* winner = Find(input, verdict.recommended);
  Estimate behind = EstimateRatio(Values(Evidence(series)));
  if (winner) {
    const auto [of_winner, own] = Common(*winner, series);
    behind = RatioBetween(*of_winner, *own);
  } else if (const auto tested = verdict.tested.find(series.candidate);
             tested != verdict.tested.end() && tested->second.interval) {
    behind = tested->second;
  }
  if (behind.interval)
    return behind.interval->high >= 1 || !ExceedsFloor(behind.median, verdict.floor);
  if (series.status == RaceStatus::kWorse) return false;
  const bool against_leader = winner && input.leader == winner->candidate;
  const auto& gap = against_leader ? series.to_leader : series.to_baseline;
  // If the winner is not the race's leader, the gap is to the baseline: compare its upper end with
  // the lower end of the winner's own interval.
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

// The next best beside the winner: confirmed ones before others, then by their estimates.
void AddRunnerUp(const VerdictInput& input, const PairedSeries& winner, Verdict& verdict) {
  std::pair<bool, double> best_rank;
  for (const PairedSeries& series : input.contestants) {
    if (&series == &winner || Evidence(series).empty()) continue;
    const std::pair rank(IsConfirmed(series), Median(Values(Evidence(series))));
    if (verdict.runner_up && rank <= best_rank) continue;
    verdict.runner_up = series.candidate;
    const auto [of_winner, own] = Common(winner, series);
    verdict.runner_up_ratio = RatioBetween(*own, *of_winner);
    best_rank = rank;
  }
}

// Nothing is recommended: a gain that is real but small, all others worse, or some that cannot be
// told from the baseline.
Outcome WithoutWinner(const Test* best, const Verdict& verdict) {
  if (best && best->is_better()) return Outcome::kSmallGain;
  return verdict.tied.empty() ? Outcome::kBaselineBest : Outcome::kNoDifference;
}

// The race's leader if no test covers it. A race that the baseline leads has none to test.
std::optional<int> UnconfirmedLeader(const VerdictInput& input, const std::vector<Test>& tests) {
  const bool tested = std::any_of(tests.begin(), tests.end(), [&](const Test& test) {
    return input.leader == test.series->candidate;
  });
  return tested || input.leader == input.baseline ? std::nullopt : input.leader;
}

// Whether the tests suffice: of the race's leader too, unless the baseline leads a decided race.
bool IsEnough(const VerdictInput& input, const std::vector<Test>& tests, size_t comparisons) {
  if (tests.empty()) return input.leader == input.baseline && input.race_over;
  return !UnconfirmedLeader(input, tests) &&
         BestOf(tests)->series->confirmation.size() >= LeastRoundsFor(comparisons);
}

Verdict DecideOne(const VerdictInput& input, const std::vector<Test>& tests, size_t comparisons) {
  Verdict verdict;
  verdict.objective = input.objective;
  verdict.comparisons = comparisons;
  verdict.recommended = verdict.best = input.baseline;
  verdict.ratio = verdict.best_ratio = {input.baseline_rounds, 1, 0, std::nullopt};
  for (const Test& test : tests) verdict.tested.emplace(test.series->candidate, test.ratio);
  const Test *winner = WinnerOf(tests), *tested = winner ? winner : BestOf(tests);
  const PairedSeries* best = tested ? tested->series : BestOfRace(input);
  if (best) verdict.best = best->candidate;
  if (best) verdict.best_ratio = tested ? tested->ratio : EstimateRatio(Values(best->log_ratios));
  verdict.confirmed = tested != nullptr;
  verdict.rounds = tested ? best->confirmation.size() : tests.size();
  verdict.floor = FloorFor(input, std::max(verdict.best_ratio.n, kMinSamples));
  if (input.baseline_rounds == 0) {
    verdict.outcome = Outcome::kNoData;
  } else if (winner) {
    verdict.outcome = Outcome::kWinner;
    verdict.recommended = best->candidate;
    verdict.ratio = winner->ratio;
    AddRunnerUp(input, *best, verdict);
  } else if (best && !IsEnough(input, tests, comparisons)) {
    verdict.outcome = Outcome::kTooFewRounds;
    if (tested) verdict.unconfirmed = UnconfirmedLeader(input, tests);
  } else {
    if (!tested) verdict.rounds = best ? best->log_ratios.size() : input.baseline_rounds;
    verdict.tied = TiedWith(input, verdict);
    verdict.outcome = WithoutWinner(tested, verdict);
  }
  if (winner) verdict.tied = TiedWith(input, verdict);
  return verdict;
}

}  // namespace

const char* Name(Outcome outcome) {
  constexpr const char* kNames[] = {"winner",        "real_but_small", "default_best",
                                    "no_difference", "too_few_rounds", "no_data"};
  return kNames[static_cast<size_t>(outcome)];
}

Estimate EstimateRatio(std::span<const double> log_ratios, double level) {
  Estimate estimate = EstimateMedian(MergeNeighbours(log_ratios), level);
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
  return std::expm1(Quantile(medians, kFloorQuantile));
}

bool ExceedsFloor(double ratio, double floor) {
  return std::abs(std::log(ratio)) > std::log1p(floor);
}

std::vector<Verdict> Decide(const std::vector<VerdictInput>& objectives) {
  const std::vector<std::vector<Test>> tests = TestsOf(objectives);
  size_t comparisons = 0;
  for (const std::vector<Test>& one : tests) comparisons += one.size();
  std::vector<Verdict> verdicts;
  for (size_t i = 0; i < objectives.size(); ++i)
    verdicts.push_back(DecideOne(objectives[i], tests[i], comparisons));
  return verdicts;
}

}  // namespace pinion::harness
