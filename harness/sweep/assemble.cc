#include "harness/sweep/assemble.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "harness/sweep/constraints.h"
#include "harness/sweep/gather.h"
#include "harness/sweep/load.h"
#include "harness/sweep/measured_loads.h"
#include "harness/sweep/pair.h"
#include "harness/sweep/rescore.h"
#include "harness/sweep/score.h"
#include "harness/sweep/slo.h"
#include "harness/sweep/source.h"
#include "harness/sweep/warnings.h"

namespace pinion::harness {
namespace {

void AddSeries(const TrialRow& trial, std::vector<Series>& series) {
  for (const MetricValue& value : trial.samples) {
    const auto same = [&](const Series& one) {
      return one.metric == value.metric && one.level == value.level;
    };
    auto found = std::find_if(series.begin(), series.end(), same);
    if (found == series.end()) {
      series.push_back({value.metric, value.level, {}, {}});
      found = series.end() - 1;
    }
    found->samples.push_back(
        {trial.round, trial.phase == Phase::kConfirmation, value.value, !trial.suspect.empty()});
  }
}

struct QuantileRows {
  size_t n = 0, fewest = 0;
  std::vector<std::vector<double>> of_trials;
};
using Quantiles = std::map<std::pair<std::string, LoadLevel>, QuantileRows>;  // by metric

void AddQuantiles(const TrialInfo& info, Quantiles& quantiles) {
  for (const Distribution& one : info.quantiles) {
    QuantileRows& rows = quantiles[{one.metric, one.level}];
    const size_t size = one.quantiles.size();
    if (!rows.of_trials.empty() && rows.of_trials.front().size() != size) continue;
    const size_t of_load = one.n / std::max<size_t>(1, info.waves.size());
    rows.fewest = rows.of_trials.empty() ? of_load : std::min(rows.fewest, of_load);
    rows.n += one.n;
    rows.of_trials.push_back(one.quantiles);
  }
}

std::vector<Distribution> DistributionsFrom(const Quantiles& quantiles) {
  std::vector<Distribution> distributions;
  for (const auto& [key, rows] : quantiles) {
    Distribution one{key.first, key.second, rows.n, {}, rows.fewest};
    for (size_t i = 0; i < rows.of_trials.front().size(); ++i) {
      std::vector<double> column;
      for (const auto& row : rows.of_trials) column.push_back(row[i]);
      one.quantiles.push_back(MedianInPlace(column));
    }
    distributions.push_back(std::move(one));
  }
  return distributions;
}

void TakeInfo(const TrialInfo& info, Candidate& candidate) {
  candidate.isa = info.isa;
  candidate.dtype = info.dtype;
  candidate.command = info.command;
  candidate.threads = info.threads;
  candidate.ranks = info.ranks;
  if (!info.no_ceilings_because.empty()) candidate.no_ceilings_because = info.no_ceilings_because;
  if (!info.plan.ranks.empty()) candidate.plan = info.plan;
}

std::string RoundName(const TrialRow& trial) {
  const char* phase = trial.phase == Phase::kRace ? "" : Name(trial.phase);
  return StrCat(phase, *phase ? " " : "", "round ", trial.round, trial.attempt ? ", repeated" : "");
}

void TakeTrials(const std::vector<TrialRow>& trials, Candidate& candidate) {
  Quantiles quantiles;
  for (const TrialRow& trial : trials) {
    if (trial.candidate != candidate.id) continue;
    candidate.log_path = trial.log_path;
    ++candidate.trials;
    candidate.seconds += trial.seconds;
    if (!trial.ok) {
      candidate.reason = StrCat(RoundName(trial), ": ", trial.reason);
      candidate.log_tail = trial.log_tail;
      candidate.status = CandidateStatus::kFailed;
      continue;
    }
    for (const std::string& reason : trial.suspect)
      candidate.suspect_reasons.push_back(StrCat(RoundName(trial), ": ", reason));
    if (trial.copy > 0 || trial.phase == Phase::kCalibration)
      continue;  // the baseline's second copy: the verdict uses it, the figures of a candidate do
                 // not
    AddSeries(trial, candidate.series);
    AddQuantiles(trial.info, quantiles);
    TakeInfo(trial.info, candidate);
  }
  // One failure among successes is reported, but the candidate stays in.
  if (!candidate.series.empty() && !HasFailed(trials, candidate.id))
    candidate.status = CandidateStatus::kOk;
  if (IsTooSlow(trials, candidate.id)) candidate.status = CandidateStatus::kTooSlow;
  candidate.distributions = DistributionsFrom(quantiles);
  for (Series& series : candidate.series) {
    std::vector<double> values;
    for (const Sample& sample : series.samples) values.push_back(sample.value);
    series.estimate = EstimateMedian(values);
  }
}

Candidate CandidateFrom(const CandidateRow& row, const std::vector<TrialRow>& trials) {
  Candidate candidate;
  candidate.id = row.id;
  candidate.label = row.label;
  candidate.engine = row.engine;
  candidate.settings = row.settings;
  candidate.configuration = row.configuration;
  candidate.is_baseline = row.is_baseline;
  candidate.same_as = row.same_as;
  TakeTrials(trials, candidate);
  if (!row.infeasible.empty()) {
    candidate.status = CandidateStatus::kInfeasible;
    candidate.reason = row.infeasible;
  }
  return candidate;
}

void AddRatios(const ByRound& log_ratios, bool confirmation, Comparison& comparison) {
  for (const auto& [round, log_ratio] : log_ratios)
    comparison.ratios.push_back({round, confirmation, std::exp(log_ratio), false});
}

// `tested`: the ratio at the level of the verdict, if the candidate was confirmed.
Comparison ComparisonFrom(Objective objective, const PairedSeries* series, const Estimate* tested) {
  Comparison comparison;
  comparison.objective = objective;
  if (!series) return comparison;
  AddRatios(series->log_ratios, false, comparison);
  AddRatios(series->confirmation, true, comparison);
  if (tested && tested->n >= kMinSamples) {
    comparison.ratio = *tested;
    return comparison;
  }
  std::vector<double> log_ratios;
  for (const auto& [round, value] : series->log_ratios) log_ratios.push_back(value);
  comparison.ratio = EstimateRatio(log_ratios);
  return comparison;
}

const ObjectiveRace* RaceOf(const ProtocolState& state, Objective objective) {
  for (const ObjectiveRace& one : state.races)
    if (one.objective == objective) return &one;
  return nullptr;
}

void AddObjective(Objective objective, const VerdictInput& input, Verdict verdict,
                  Results& results) {
  results.floors.push_back(verdict.floor);
  results.noise.push_back({input.baseline_log_ratios.size(),
                           Lag1Autocorrelation(input.baseline_log_ratios),
                           MedianAbsoluteDeviation(input.baseline_log_ratios)});
  for (Candidate& candidate : results.candidates) {
    const PairedSeries* own = nullptr;
    for (const PairedSeries& series : input.contestants)
      if (series.candidate == candidate.id) own = &series;
    const auto tested = verdict.tested.find(candidate.id);
    candidate.comparisons.push_back(
        ComparisonFrom(objective, own, tested == verdict.tested.end() ? nullptr : &tested->second));
  }
  results.verdicts.push_back(std::move(verdict));
}

void AddObjectives(const std::vector<CandidateRow>& rows, const ProtocolState& state,
                   Results& results) {
  const std::vector<Objective>& objectives = results.definition.objectives;
  std::vector<VerdictInput> inputs;
  for (const Objective objective : objectives) {
    inputs.push_back(InputFor(objective, results.definition, rows, state.trials,
                              RaceOf(state, objective), state.race_over));
    if (const auto agreed = state.agreed_leaders.find(objective);
        agreed != state.agreed_leaders.end())
      inputs.back().leader = agreed->second;
  }
  std::vector<Verdict> verdicts = Decide(inputs);
  for (size_t i = 0; i < objectives.size(); ++i)
    AddObjective(objectives[i], inputs[i], std::move(verdicts[i]), results);
}

// The result of a comparison of two, in place of a sweep's verdict.
void TakePair(const std::vector<TrialRow>& trials, Results& results) {
  const Definition& definition = results.definition;
  const PairVerdict pair = JudgePair(trials, definition.objectives.front(), definition);
  results.verdicts = {AsVerdict(pair)};
  results.floors = {pair.floor};
  for (Candidate& candidate : results.candidates)
    if (!candidate.is_baseline)
      for (Comparison& comparison : candidate.comparisons) comparison.ratio = pair.ratio;
}

void TakePredictions(const Json& predictions, Results& results) {
  for (const Json& one : ItemsOf(predictions, "candidates")) {
    const Json *name = one.Find("name"), *prediction = one.Find("prediction");
    for (Candidate& candidate : results.candidates)
      if (name && prediction && *name == Json(candidate.label)) candidate.predicted = *prediction;
  }
}

// A dropped candidate has numbers, if fewer than the others; one that was not
// measured has only a reason.
void MarkUndecided(const ProtocolState& state, Results& results) {
  const auto mark = [](const std::map<int, std::string>& reasons, CandidateStatus from,
                       CandidateStatus to, Candidate& candidate) {
    const auto found = reasons.find(candidate.id);
    if (found == reasons.end() || candidate.status != from) return;
    candidate.status = to;
    candidate.reason = found->second;
  };
  for (Candidate& candidate : results.candidates) {
    mark(state.disqualified, CandidateStatus::kOk, CandidateStatus::kDisqualified, candidate);
    mark(state.dropped, CandidateStatus::kOk, CandidateStatus::kDropped, candidate);
    mark(state.pruned, CandidateStatus::kPending, CandidateStatus::kPruned, candidate);
    mark(state.passed_over, CandidateStatus::kPending, CandidateStatus::kPending, candidate);
  }
}

}  // namespace

VerdictInput InputFor(Objective objective, const Definition& definition,
                      const std::vector<CandidateRow>& candidates,
                      const std::vector<TrialRow>& trials, const ObjectiveRace* race,
                      bool race_over) {
  const ScoreRule rule(definition);
  VerdictInput input;
  input.objective = Name(objective);
  input.epsilon = definition.epsilon;
  input.baseline_log_ratios = BaselineDifferences(trials, objective, rule);
  input.race_over = race_over || (race && race->race.over());
  if (race) input.leader = race->leader();
  // By the mean of the baseline's two trials of a round, or by the one that succeeded.
  auto baseline = ScoresOf(trials, 0, 0, objective, rule);
  const auto again = ScoresOf(trials, 0, 1, objective, rule);
  for (const auto& [key, second] : again) {
    const auto [first, is_alone] = baseline.emplace(key, second);
    if (!is_alone) first->second = (first->second + second) / 2;
  }
  for (const auto& [key, score] : baseline)
    input.baseline_rounds += key.first == Phase::kRace ? 1 : 0;
  for (const CandidateRow& row : candidates) {
    if (row.is_baseline || !row.infeasible.empty() || HasFailed(trials, row.id) ||
        WhyDisqualified(definition.constraints, trials, row.id))
      continue;
    PairedSeries series;
    series.candidate = row.id;
    series.settings_off_default =
        static_cast<int>(row.settings.size()) + (row.engine == candidates.front().engine ? 0 : 1);
    series.cores = row.cores;
    for (const auto& [key, score] : ScoresOf(trials, row.id, 0, objective, rule))
      if (const auto reference = baseline.find(key); reference != baseline.end())
        (key.first == Phase::kConfirmation ? series.confirmation : series.log_ratios)[key.second] =
            score - reference->second;
    if (series.log_ratios.empty()) continue;
    if (const auto index = race ? race->IndexOf(row.id) : std::nullopt) {
      series.status = race->race.status(*index);
      series.to_baseline = race->race.GapBetween(*index, 0);
      if (race->race.leader())
        series.to_leader = race->race.GapBetween(*index, *race->race.leader());
    }
    input.contestants.push_back(std::move(series));
  }
  return input;
}

ProtocolState StateFrom(const SweepMeta& meta, const std::vector<CandidateRow>& candidates,
                        const std::vector<TrialRow>& trials) {
  StoredSource source(trials);
  SilentProgress silence;
  const Forecasts forecasts =
      ForecastsFrom(meta.predictions, candidates, meta.definition.objectives, meta.definition);
  Protocol protocol(meta.definition, candidates, forecasts, source, silence);
  // An error means a baseline that failed for good; the state so far is still valid.
  (void)protocol.Run();
  ProtocolState state = protocol.state();
  // Trials that this protocol would not have run (from before a --resume with another budget) still
  // count as samples.
  state.trials = trials;
  return state;
}

Results Assemble(const SweepMeta& meta, const SweepProgress& progress,
                 const std::vector<CandidateRow>& candidates, const std::vector<TrialRow>& trials) {
  Results results;
  results.model = meta.model;
  results.definition = meta.definition;
  results.batch_prompts = ReducedBatch(trials);
  results.command_line = meta.command_line;
  results.version = meta.version;
  results.commit = meta.commit;
  results.started_at = meta.started_at;
  results.updated_at = progress.updated_at;
  results.machine = meta.machine;
  results.budget = meta.budget;
  results.model_facts = meta.model_facts;
  results.provenance = meta.provenance;
  results.rounds_planned = progress.rounds_planned;
  results.finished = progress.finished;
  results.nodes = meta.nodes;
  const ProtocolState state = meta.nodes.is_array() ? StateOfNodes(meta, candidates, trials)
                                                    : StateFrom(meta, candidates, trials);
  results.rounds_done = state.rounds_done;
  results.confirmation_rounds = state.confirmations_done;
  results.calibration_rounds = state.calibrations_done;
  for (const TrialRow& trial : trials) results.elapsed_s += trial.seconds;
  results.loads = MeasuredLoadsOf(trials);
  for (const CandidateRow& row : candidates)
    results.candidates.push_back(CandidateFrom(row, trials));
  AddObjectives(candidates, state, results);
  if (meta.definition.strategy == Strategy::kPair) TakePair(trials, results);
  MarkUndecided(state, results);
  TakePredictions(meta.predictions, results);
  if (const auto& slo = meta.definition.workload.slo)
    for (Candidate& candidate : results.candidates)
      candidate.slo = PooledBoundary(trials, candidate.id, *slo);
  results.warnings = WarningsOf(meta, trials, results);
  return results;
}

namespace {

// Replaces the limits that requests are judged by, and the share that must meet them if it is
// given; how the search was made stays.
Status UseSlo(const Json& slo, Store& store, SweepMeta& meta, std::vector<TrialRow>& trials) {
  Workload asked;
  PINION_TRY(FromJson(Json(Json::Object{{"slo", slo}}), asked));
  std::optional<SloTarget>& target = meta.definition.workload.slo;
  if (!target) target = asked.slo;
  target->limits = asked.slo->limits;
  if (slo.Find("attain")) target->attain = asked.slo->attain;
  return Rescore(store, *target, trials);
}

}  // namespace

Result<Results> LoadResults(const std::string& folder, const std::optional<Json>& slo) {
  PINION_ASSIGN(const auto store, Store::Open(folder + "/results.db"));
  PINION_ASSIGN(SweepMeta meta, ReadMeta(*store));
  PINION_ASSIGN(const SweepProgress progress, ReadProgress(*store));
  PINION_ASSIGN(const std::vector<CandidateRow> candidates, store->Candidates());
  PINION_ASSIGN(std::vector<TrialRow> trials, store->Trials());
  if (slo) PINION_TRY(UseSlo(*slo, *store, meta, trials));
  return Assemble(meta, progress, candidates, trials);
}

}  // namespace pinion::harness
