#include "harness/sweep/replay.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>

#include "engine/base/strings.h"
#include "harness/stats/estimate.h"
#include "harness/sweep/assemble.h"
#include "harness/sweep/drawn.h"
#include "harness/sweep/pair.h"
#include "harness/sweep/proposer.h"
#include "harness/sweep/protocol.h"

namespace pinion::harness {
namespace {

constexpr int kExhaustiveRounds = 20;

// Whether the truth lies in the interval with which the verdict was printed.
std::optional<bool> Covered(const Verdict& verdict, double log_truth) {
  const auto& interval = verdict.best_ratio.interval;
  if (!verdict.confirmed || !interval) return std::nullopt;
  // The truth may be an end of the interval to the last bit.
  constexpr double kRounding = 1e-12;
  return interval->low <= std::exp(log_truth) + kRounding &&
         std::exp(log_truth) - kRounding <= interval->high;
}

// Takes one objective's verdict and the leader of its race; of several, the worst counts.
void Take(const Verdict& verdict, int leader, const std::vector<double>& log_truth, double epsilon,
          ReplayEnding& ending) {
  const double best = *std::max_element(log_truth.begin(), log_truth.end());
  const auto truth = [&](int candidate) { return log_truth[static_cast<size_t>(candidate)]; };
  const int crowned = verdict.outcome == Outcome::kWinner ? verdict.recommended : 0;
  if (crowned && (!ending.crowned || truth(crowned) < ending.crowned_log_truth)) {
    ending.crowned = crowned;
    ending.crowned_log_truth = truth(crowned);
  }
  ending.crowned_small |= crowned && verdict.ratio.median <= 1 + std::max(verdict.floor, epsilon);
  if (verdict.outcome == Outcome::kBaselineBest) {
    ending.default_best = true;
    ending.false_best |= *std::max_element(log_truth.begin() + 1, log_truth.end()) >= 0;
  }
  ending.undecided |= verdict.outcome == Outcome::kTooFewRounds;
  if (leader && !ending.ended_with) ending.ended_with = leader;
  ending.regret = std::max(ending.regret, -std::expm1(truth(crowned) - best));
  ending.floor = std::max(ending.floor, verdict.floor);
  if (!ending.covered) ending.covered = Covered(verdict, truth(verdict.best));
}

Result<ReplayEnding> ReplayOnce(const Definition& definition,
                                const std::vector<CandidateRow>& candidates, TrialSource& source,
                                const std::vector<double>& log_truth) {
  SilentProgress silence;
  const Forecasts nothing_predicted;
  Protocol protocol(definition, candidates, nothing_predicted, source, silence);
  auto end = protocol.Run();
  const ProtocolState& state = protocol.state();
  // A default whose planted failures end the sweep before it ever ran: nothing is found.
  const bool never_ran = std::all_of(state.trials.begin(), state.trials.end(),
                                     [](const TrialRow& trial) { return !trial.ok; });
  if (!end && (!never_ran || state.trials.empty())) return Unexpected(std::move(end).error());
  std::vector<VerdictInput> inputs;
  std::vector<int> leaders;
  for (size_t i = 0; i < definition.objectives.size(); ++i) {
    const ObjectiveRace* race = state.races.empty() ? nullptr : &state.races[i];
    inputs.push_back(InputFor(definition.objectives[i], definition, candidates, state.trials, race,
                              state.race_over));
    leaders.push_back(race ? race->leader().value_or(0) : 0);
  }
  std::vector<Verdict> verdicts = Decide(inputs);
  if (definition.strategy == Strategy::kPair) {
    verdicts = {AsVerdict(JudgePair(state.trials, definition.objectives.front(), definition))};
    verdicts.front().confirmed = true;  // no choice was made: every round is as good as a fresh one
  }
  ReplayEnding outcome;
  for (size_t i = 0; i < verdicts.size(); ++i)
    Take(verdicts[i], leaders[i], log_truth, definition.epsilon, outcome);
  const Spending& spending = protocol.spending();
  outcome.unspent =
      outcome.undecided && spending.left_s() >= spending.RoundSeconds({0, outcome.ended_with});
  outcome.trials = static_cast<double>(state.trials.size());
  const double budget_s = definition.budget_s;
  outcome.overrun = std::max(0.0, spending.spent_s() - budget_s) / budget_s;
  return outcome;
}

// "isa=avx2 smt=on" as two settings; another name as one.
std::vector<Setting> SettingsIn(const std::string& name) {
  std::vector<Setting> settings;
  std::istringstream words(name);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) return {{"configuration", name}};
    settings.push_back({word.substr(0, equals), word.substr(equals + 1)});
  }
  return settings;
}

std::vector<CandidateRow> RowsFor(const std::vector<std::string>& names) {
  std::vector<CandidateRow> rows;
  for (const std::string& name : names) {
    CandidateRow row;
    row.id = static_cast<int>(rows.size());
    row.label = name;
    row.is_baseline = rows.empty();
    if (!row.is_baseline) row.settings = SettingsIn(name);
    rows.push_back(std::move(row));
  }
  return rows;
}

// Figures that need nothing of the series.
ReplayReport Summed(const std::vector<ReplayEnding>& endings,
                    const std::vector<std::string>& names) {
  ReplayReport report;
  report.seeds = static_cast<int>(endings.size());
  report.default_name = names[0];
  for (size_t c = 1; c < names.size(); ++c) report.winners.emplace_back(names[c], 0);
  std::vector<double> regrets, costs, overruns, floors;
  int covered = 0, confirmed = 0;
  for (const ReplayEnding& one : endings) {
    (one.crowned ? report.winners[static_cast<size_t>(one.crowned) - 1].second : report.none) += 1;
    report.default_best += one.default_best ? 1 : 0;
    report.undecided += one.undecided ? 1 : 0;
    report.unspent += one.unspent ? 1 : 0;
    regrets.push_back(one.regret);
    costs.push_back(one.cost);
    overruns.push_back(one.overrun);
    floors.push_back(one.floor);
    confirmed += one.covered ? 1 : 0;
    covered += one.covered.value_or(false) ? 1 : 0;
  }
  if (confirmed) report.interval_coverage = static_cast<double>(covered) / confirmed;
  report.regret_p95 = Quantile(regrets, 0.95);
  report.cost_fraction_p50 = Quantile(costs, 0.5);
  report.budget_overrun_p95 = Quantile(overruns, 0.95);
  report.floor_p50 = Quantile(floors, 0.5);
  return report;
}

// All replays of contestants whose source is made anew for each seed.
template <typename MakeSource>
Result<std::vector<ReplayEnding>> Replays(const std::vector<std::string>& names,
                                          const std::vector<double>& log_truth, size_t contestants,
                                          double trial_s, const ReplayOptions& options,
                                          MakeSource make_source) {
  const std::vector<CandidateRow> candidates = RowsFor(names);
  const double exhaustive = kExhaustiveRounds * static_cast<double>(contestants);
  Definition definition = options.definition;
  if (definition.budget_s <= 0) definition.budget_s = exhaustive * trial_s;
  std::unique_ptr<Proposer> proposer;
  if (definition.strategy == Strategy::kTpe) {
    PINION_ASSIGN(proposer, StartTpe(candidates, [] { return std::string(); }));
  }
  std::vector<ReplayEnding> endings;
  for (int k = 0; k < options.seeds; ++k) {
    definition.seed = options.definition.seed + static_cast<uint64_t>(k);
    auto source = make_source(definition.seed, proposer.get());
    PINION_ASSIGN(ReplayEnding one, ReplayOnce(definition, candidates, source, log_truth));
    one.offset = source.offset();
    one.cost = one.trials / exhaustive;
    endings.push_back(one);
  }
  return endings;
}

// Objectives of the same speed, of which a replay asks for the first ones.
Result<ReplayOptions> AskedOf(const Planted& planted, const ReplayOptions& options) {
  ReplayOptions asked = options;
  asked.definition.objectives = {Objective::kThroughput, Objective::kLatency, Objective::kBalanced};
  asked.definition.objectives.resize(planted.objectives);
  if (options.definition.strategy == Strategy::kPair &&
      (planted.configurations.size() != 2 || planted.objectives != 1))
    return Fail(ErrorCode::kUsage,
                StrCat("strategy pair compares two configurations in one objective, not ",
                       planted.configurations.size(), " in ", planted.objectives));
  return asked;
}

std::vector<std::string> NamesOf(const Planted& planted) {
  std::vector<std::string> names;
  for (const auto& [name, speed] : planted.configurations) names.push_back(name);
  return names;
}

}  // namespace

Result<ReplayReport> ReplayPlanted(const Recording& recording, const Planted& planted,
                                   const ReplayOptions& options) {
  const std::vector<std::string> names = NamesOf(planted);
  std::vector<double> log_truth;
  for (const PlantedCandidate& one : CandidatesOf(planted)) log_truth.push_back(one.log_speed);
  PINION_ASSIGN(const ReplayOptions asked, AskedOf(planted, options));
  const size_t contestants = names.size() - (planted.default_is_listed ? 0 : 1);
  PINION_ASSIGN(
      const std::vector<ReplayEnding> endings,
      Replays(names, log_truth, contestants, 1, asked, [&](uint64_t seed, Proposer* proposer) {
        return SeriesSource(recording, planted, seed, proposer);
      }));
  ReplayReport report = Summed(endings, names);
  report.by_blocks = FiguresOf(endings, recording.log_speeds.size(),
                               *std::max_element(log_truth.begin(), log_truth.end()));
  return report;
}

Result<ReplayReport> ReplaySweep(const RecordedSweep& recorded, const Planted& planted,
                                 const ReplayOptions& options) {
  const std::vector<PlantedCandidate> candidates = CandidatesOf(planted);
  std::vector<double> log_truth;
  double trial_s = 0;
  for (const RecordedSweep::Contestant& one : recorded.contestants) {
    log_truth.push_back(Median(one.log_ratios) + candidates[log_truth.size()].log_speed);
    trial_s = std::max(trial_s, Median(one.seconds));
  }
  PINION_ASSIGN(const ReplayOptions asked, AskedOf(planted, options));
  PINION_ASSIGN(const std::vector<ReplayEnding> endings,
                Replays(NamesOf(planted), log_truth, log_truth.size(), trial_s, asked,
                        [&](uint64_t seed, Proposer* proposer) {
                          return SweepSource(recorded, planted, seed, proposer);
                        }));
  return Summed(endings, NamesOf(planted));
}

}  // namespace pinion::harness
