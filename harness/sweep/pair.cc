#include "harness/sweep/pair.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "engine/base/strings.h"
#include "harness/stats/exchanges.h"
#include "harness/stats/rules.h"
#include "harness/stats/text.h"
#include "harness/stats/verdict.h"
#include "harness/sweep/score.h"

namespace pinion::harness {
namespace {

using Kind = PairVerdict::Kind;

const TrialRow* TrialOf(const std::vector<TrialRow>& trials, int candidate, const RoundKey& round) {
  const auto found = std::find_if(trials.begin(), trials.end(), [&](const TrialRow& trial) {
    return trial.ok && trial.candidate == candidate && RoundKey(trial.phase, trial.round) == round;
  });
  return found == trials.end() ? nullptr : &*found;
}

// The log scores of a trial's waves; nullopt for one without a figure.
std::vector<std::optional<double>> WaveScores(const TrialRow& trial, Objective objective,
                                              const ScoreRule& rule) {
  std::vector<std::optional<double>> scores;
  for (const std::vector<MetricValue>& samples : trial.info.waves) {
    TrialRow wave;
    wave.samples = samples;
    scores.push_back(LogScore(wave, objective, rule));
  }
  return scores;
}

// By how much the second side leads the first in a round in which they took turns: the median over
// its waves, so that a disturbed one counts as one. None if the round has no waves.
std::optional<double> LeadInTurns(const TrialRow& first, const TrialRow& second,
                                  Objective objective, const ScoreRule& rule) {
  const auto a = WaveScores(first, objective, rule), b = WaveScores(second, objective, rule);
  std::vector<double> leads;
  for (size_t wave = 0; wave < std::min(a.size(), b.size()); ++wave)
    if (a[wave] && b[wave]) leads.push_back(*b[wave] - *a[wave]);
  if (leads.empty()) return std::nullopt;
  return MedianInPlace(leads);
}

// The round's scores from its lead, about the middle of both, so that exchanging the sides
// exchanges the scores.
void SetLead(double lead, ScoredPair& pair) {
  const double middle = (pair.first + pair.second) / 2;
  pair.first = middle - lead / 2;
  pair.second = middle + lead / 2;
}

// The rounds that have both sides, in the order of measurement.
std::vector<ScoredPair> PairsOf(const std::vector<TrialRow>& trials, Objective objective,
                                const ScoreRule& rule) {
  const auto first = ScoresOf(trials, 0, 0, objective, rule);
  const auto second = ScoresOf(trials, 1, 0, objective, rule);
  std::vector<ScoredPair> pairs;
  std::set<RoundKey> taken;
  for (const TrialRow& trial : trials) {
    const RoundKey round(trial.phase, trial.round);
    const auto a = first.find(round), b = second.find(round);
    if (a == first.end() || b == second.end() || !taken.insert(round).second) continue;
    const auto order = ScoresInOrder(trials, round, objective, rule);
    ScoredPair& pair = pairs.emplace_back();
    pair = {a->second, b->second, order.front().first == 1};
    if (const auto lead =
            LeadInTurns(*TrialOf(trials, 0, round), *TrialOf(trials, 1, round), objective, rule))
      SetLead(*lead, pair);
  }
  return pairs;
}

Kind Judge(const PairVerdict& verdict) {
  const auto& interval = verdict.ratio.interval;
  if (!interval) return Kind::kTooFewRounds;
  const double ratio = verdict.ratio.median;
  if (interval->Holds(1) || std::abs(ratio - 1) <= verdict.threshold) return Kind::kNoDifference;
  return ratio > 1 ? Kind::kBetter : Kind::kWorse;
}

}  // namespace

const char* Name(Kind kind) {
  constexpr const char* kNames[] = {"no difference", "better", "worse", "too few rounds"};
  return kNames[static_cast<size_t>(kind)];
}

PairVerdict JudgePair(const std::vector<TrialRow>& trials, Objective objective,
                      const Definition& definition) {
  const std::vector<ScoredPair> pairs = PairsOf(trials, objective, ScoreRule(definition));
  const PairComparison found = ComparePairs(pairs, kPairLevel);
  PairVerdict verdict;
  verdict.objective = objective;
  verdict.threshold = definition.epsilon;
  verdict.ratio.n = found.rounds;
  verdict.ratio.median = std::exp(found.log_ratio);
  if (const auto& logs = found.interval) {
    verdict.ratio.interval = {std::exp(logs->low), std::exp(logs->high), logs->coverage};
    verdict.floor = std::expm1((logs->high - logs->low) / 2);
  }
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
                  LeastPairs(kPairLevel), ": raise --budget\n");
  const bool differs = verdict.kind != Kind::kNoDifference;
  const std::string what = !differs ? StrCat("No difference was found between ", b, " and ", a)
                                    : StrCat(b, " is ", Percent(std::abs(verdict.ratio.median - 1)),
                                             " ", Name(verdict.kind), " than ", a);
  return StrCat(what, ".\n", Name(verdict.objective), ": ", b, " against ", a, " ",
                Change(verdict.ratio.median), ", ", Percent(verdict.ratio.interval->coverage),
                " interval ", Change(verdict.ratio.interval->low), " to ",
                Change(verdict.ratio.interval->high), ", ", verdict.ratio.n,
                " rounds. A difference counts beyond ", Percent(verdict.threshold),
                " if the interval excludes 0.\n");
}

}  // namespace pinion::harness
