#include "harness/sweep/pair.h"

#include <cmath>

#include "engine/base/strings.h"
#include "harness/stats/text.h"
#include "harness/stats/verdict.h"
#include "harness/sweep/score.h"

namespace pinion::harness {
namespace {

using Kind = PairVerdict::Kind;

// With trials whose logs vary by s, the baseline's two differ by s * sqrt(2), and a trial differs
// from the mean of two others by s * sqrt(1 + 1/2): what noise makes of the latter is smaller.
double FloorOfPairs(std::vector<double> baseline_differences, size_t rounds) {
  for (double& difference : baseline_differences) difference *= std::sqrt(1.5 / 2);
  return NoiseFloor(baseline_differences, rounds);
}

Kind Judge(const PairVerdict& verdict) {
  const auto& interval = verdict.ratio.interval;
  if (!interval) return Kind::kTooFewRounds;
  const double ratio = verdict.ratio.median;
  if (interval->Holds(1) || std::abs(ratio - 1) <= verdict.threshold ||
      !ExceedsFloor(ratio, verdict.floor))
    return Kind::kNoDifference;
  return ratio > 1 ? Kind::kBetter : Kind::kWorse;
}

}  // namespace

const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kNoDifference:
      return "no difference";
    case Kind::kBetter:
      return "better";
    case Kind::kWorse:
      return "worse";
    case Kind::kTooFewRounds:
      return "too few rounds";
  }
  return "";
}

PairVerdict JudgePair(const std::vector<TrialRow>& trials, Objective objective,
                      const Definition& definition) {
  const ScoreRule rule(definition);
  const auto first = ScoresOf(trials, 0, 0, objective, rule);
  const auto again = ScoresOf(trials, 0, 1, objective, rule);
  std::vector<double> log_ratios;
  for (const auto& [key, score] : ScoresOf(trials, 1, 0, objective, rule)) {
    const auto a = first.find(key), second = again.find(key);
    if (a == first.end() || second == again.end()) continue;
    log_ratios.push_back(score - (a->second + second->second) / 2);
  }
  PairVerdict verdict;
  verdict.objective = objective;
  verdict.threshold = definition.epsilon;
  verdict.ratio = EstimateRatio(log_ratios);
  verdict.floor = FloorOfPairs(BaselineDifferences(trials, objective, rule), log_ratios.size());
  verdict.kind = Judge(verdict);
  return verdict;
}

Verdict AsVerdict(const PairVerdict& pair) {
  constexpr int kSecond = 1;
  Verdict verdict;
  verdict.objective = Name(pair.objective);
  verdict.best = kSecond;
  verdict.best_ratio = pair.ratio;
  verdict.ratio = {pair.ratio.n, 1, 0, std::nullopt};
  verdict.tested.emplace(kSecond, pair.ratio);
  verdict.comparisons = 1;
  verdict.floor = pair.floor;
  verdict.rounds = pair.ratio.n;
  switch (pair.kind) {
    case Kind::kBetter:
      verdict.outcome = Outcome::kWinner;
      verdict.recommended = kSecond;
      verdict.ratio = pair.ratio;
      break;
    case Kind::kWorse:
      verdict.outcome = Outcome::kBaselineBest;
      break;
    case Kind::kNoDifference:
      verdict.outcome = Outcome::kNoDifference;
      verdict.tied = {kSecond};
      break;
    case Kind::kTooFewRounds:
      verdict.outcome = Outcome::kTooFewRounds;
      break;
  }
  return verdict;
}

Json ToJson(const PairVerdict& verdict) {
  const auto& interval = verdict.ratio.interval;
  return Json::Object{{"verdict", Name(verdict.kind)},
                      {"ratio", Json::Object{{"estimate", verdict.ratio.median},
                                             {"low", interval ? Json(interval->low) : Json()},
                                             {"high", interval ? Json(interval->high) : Json()}}},
                      {"objective", Name(verdict.objective)},
                      {"rounds", static_cast<int64_t>(verdict.ratio.n)},
                      {"floor", verdict.floor},
                      {"threshold", verdict.threshold}};
}

std::string Render(const PairVerdict& verdict, const std::string& a, const std::string& b) {
  if (verdict.kind == Kind::kTooFewRounds)
    return StrCat(verdict.ratio.n, " whole rounds are too few for a verdict, which needs ",
                  kMinSamples, ": raise --budget\n");
  const bool differs = verdict.kind != Kind::kNoDifference;
  const std::string what = !differs ? StrCat("No difference was found between ", b, " and ", a)
                                    : StrCat(b, " is ", Percent(std::abs(verdict.ratio.median - 1)),
                                             " ", Name(verdict.kind), " than ", a);
  return StrCat(what, ".\n", Name(verdict.objective), ": ", b, " against ", a, " ",
                Change(verdict.ratio.median), ", 95 % interval ",
                Change(verdict.ratio.interval->low), " to ", Change(verdict.ratio.interval->high),
                ", ", verdict.ratio.n, " rounds. A difference counts beyond ",
                Percent(verdict.threshold), " and beyond the floor of ", Percent(verdict.floor),
                ", which noise alone makes.\n");
}

}  // namespace pinion::harness
