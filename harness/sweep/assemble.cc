#include "harness/sweep/assemble.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/base/strings.h"
#include "harness/sweep/load.h"

namespace pinion::harness {
namespace {

std::optional<double> ValueOf(const TrialRow& trial, const char* metric, int concurrency) {
  for (const MetricValue& sample : trial.samples)
    if (sample.metric == metric && sample.concurrency == concurrency) return sample.value;
  return std::nullopt;
}

// A trial's place in the experiment, by which it is paired with others.
using RoundKey = std::pair<bool, int>;  // confirmation, round

std::map<RoundKey, double> ScoresOf(const std::vector<TrialRow>& trials, int candidate, int copy,
                                    Objective objective, int output_len) {
  std::map<RoundKey, double> scores;
  for (const TrialRow& trial : trials) {
    if (trial.candidate != candidate || trial.copy != copy || !trial.ok) continue;
    if (const auto score = LogScore(trial, objective, output_len))
      scores[{trial.confirmation, trial.round}] = *score;
  }
  return scores;
}

std::vector<Setting> SettingsFrom(const Json& pairs) {
  std::vector<Setting> settings;
  if (!pairs.is_array()) return settings;
  for (const Json& pair : pairs.array())
    if (pair.is_array() && pair.array().size() == 2)
      settings.push_back({pair.array()[0].string(), pair.array()[1].string()});
  return settings;
}

void AddSeries(const TrialRow& trial, std::vector<Series>& series) {
  for (const MetricValue& value : trial.samples) {
    const auto same = [&](const Series& one) {
      return one.metric == value.metric && one.concurrency == value.concurrency;
    };
    auto found = std::find_if(series.begin(), series.end(), same);
    if (found == series.end()) {
      series.push_back({value.metric, value.concurrency, {}, {}});
      found = series.end() - 1;
    }
    found->samples.push_back(
        {trial.round, trial.confirmation, value.value, !trial.suspect.empty()});
  }
}

template <typename T>
T InfoOr(const Json& info, const char* key, T fallback) {
  return Optional<T>(info, key, fallback).value_or(fallback);
}

void TakeInfo(const Json& info, Candidate& candidate) {
  candidate.isa = InfoOr<std::string>(info, "isa", "");
  candidate.dtype = InfoOr<std::string>(info, "dtype", "");
  candidate.command = InfoOr<std::string>(info, "command", "");
  candidate.threads = InfoOr(info, "threads", 0);
  candidate.ranks = InfoOr(info, "ranks", 0);
  if (const Json* plan = info.Find("plan")) candidate.plan = *plan;
}

std::string RoundName(const TrialRow& trial) {
  return StrCat(trial.confirmation ? "confirmation round " : "round ", trial.round);
}

void TakeTrials(const std::vector<TrialRow>& trials, Candidate& candidate) {
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
    if (trial.copy > 0) continue;  // a contestant of its own, known only to the floor
    AddSeries(trial, candidate.series);
    TakeInfo(trial.info, candidate);
    if (candidate.output_hash.empty()) candidate.output_hash = trial.output_hash;
  }
  // One failure among successes is told of, but the candidate stays in.
  if (!candidate.series.empty() && !HasFailed(trials, candidate.id))
    candidate.status = CandidateStatus::kOk;
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
  candidate.settings = SettingsFrom(row.settings);
  candidate.options = row.options;
  candidate.is_anchor = row.is_anchor;
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

// What the verdict was reached on: confirmation rounds where there are enough, as in Decide.
Comparison ComparisonFrom(Objective objective, const PairedSeries* series) {
  Comparison comparison;
  comparison.objective = objective;
  if (!series) return comparison;
  AddRatios(series->log_ratios, false, comparison);
  AddRatios(series->confirmation, true, comparison);
  std::vector<double> log_ratios;
  for (const auto& [round, value] : series->log_ratios) log_ratios.push_back(value);
  comparison.ratio = EstimateRatio(log_ratios);
  return comparison;
}

void AddObjective(Objective objective, const std::vector<CandidateRow>& rows,
                  const std::vector<TrialRow>& trials, Results& results) {
  const VerdictInput input = InputFor(objective, results.definition, rows, trials);
  results.verdicts.push_back(Decide(input));
  results.floors.push_back(
      NoiseFloor(input.anchor_log_ratios, static_cast<size_t>(std::max(1, results.rounds_done))));
  for (Candidate& candidate : results.candidates) {
    const PairedSeries* own = nullptr;
    for (const PairedSeries& series : input.contestants)
      if (series.candidate == candidate.id) own = &series;
    candidate.comparisons.push_back(ComparisonFrom(objective, own));
  }
}

// The anchor's two runs of a round have the same prompts and must say the same.
void WarnOfDifferentTokens(const std::vector<TrialRow>& trials, Results& results) {
  std::map<RoundKey, std::string> hashes;
  for (const TrialRow& trial : trials) {
    if (trial.candidate != 0 || trial.output_hash.empty()) continue;
    const auto [known, is_new] =
        hashes.emplace(RoundKey{trial.confirmation, trial.round}, trial.output_hash);
    if (!is_new && known->second != trial.output_hash)
      results.warnings.push_back(StrCat(RoundName(trial),
                                        ": the default configuration gave different "
                                        "tokens for the same prompts in its two runs"));
  }
}

void AddWarnings(const std::vector<TrialRow>& trials, Results& results) {
  size_t suspect = 0, failed = 0, cut = 0;
  for (const TrialRow& trial : trials) {
    suspect += trial.ok && !trial.suspect.empty() ? 1 : 0;
    failed += trial.ok ? 0 : 1;
    const Json* cuts = trial.info.Find("cut");
    cut += cuts && cuts->is_array() && !cuts->array().empty() ? 1 : 0;
  }
  const auto warn = [&](size_t count, const char* what) {
    if (count > 0)
      results.warnings.push_back(StrCat(count, " of ", trials.size(), " trials ", what));
  };
  warn(failed, "failed; the candidates say why");
  warn(suspect, "were disturbed by something else on the machine; they are kept and marked");
  warn(cut, "reached their time limit and were measured on fewer tokens; raise trial_limit");
  if (results.rounds_done < static_cast<int>(kMinSamples))
    results.warnings.push_back(StrCat("only ", results.rounds_done, " whole rounds: ", kMinSamples,
                                      " are needed for a verdict"));
  if (!results.finished) results.warnings.push_back("this sweep is not finished; --resume goes on");
  WarnOfDifferentTokens(trials, results);
}

}  // namespace

std::optional<double> LogScore(const TrialRow& trial, Objective objective, int output_len) {
  if (objective == Objective::kBalanced) {
    const auto throughput = LogScore(trial, Objective::kThroughput, output_len);
    const auto latency = LogScore(trial, Objective::kLatency, output_len);
    if (!throughput || !latency) return std::nullopt;
    return (*throughput + *latency) / 2;
  }
  if (objective == Objective::kThroughput) {
    const auto tokens_per_s = ValueOf(trial, "output_tokens_per_s", 0);
    if (!tokens_per_s || *tokens_per_s <= 0) return std::nullopt;
    return std::log(*tokens_per_s);
  }
  const auto ttft_s = ValueOf(trial, "ttft_s", 1), tpot_s = ValueOf(trial, "tpot_s", 1);
  if (!ttft_s || !tpot_s) return std::nullopt;
  const double seconds = *ttft_s + (output_len - 1) * *tpot_s;
  if (seconds <= 0) return std::nullopt;
  return -std::log(seconds);
}

VerdictInput InputFor(Objective objective, const Definition& definition,
                      const std::vector<CandidateRow>& candidates,
                      const std::vector<TrialRow>& trials) {
  const int output_len = definition.workload.output_len;
  VerdictInput input;
  input.objective = Name(objective);
  const auto anchor = ScoresOf(trials, 0, 0, objective, output_len);
  for (const auto& [key, score] : anchor) input.anchor_rounds += key.first ? 0 : 1;
  for (const auto& [key, score] : ScoresOf(trials, 0, 1, objective, output_len))
    if (const auto first = anchor.find(key); first != anchor.end())
      input.anchor_log_ratios.push_back(score - first->second);
  for (const CandidateRow& row : candidates) {
    if (row.is_anchor || !row.infeasible.empty() || HasFailed(trials, row.id)) continue;
    PairedSeries series;
    series.candidate = row.id;
    series.name = row.label;
    series.settings_off_default = static_cast<int>(SettingsFrom(row.settings).size());
    series.cores = row.cores;
    for (const auto& [key, score] : ScoresOf(trials, row.id, 0, objective, output_len))
      if (const auto reference = anchor.find(key); reference != anchor.end())
        (key.first ? series.confirmation : series.log_ratios)[key.second] =
            score - reference->second;
    if (!series.log_ratios.empty()) input.contestants.push_back(std::move(series));
  }
  return input;
}

int RoundsDone(const std::vector<CandidateRow>& candidates, const std::vector<TrialRow>& trials,
               bool confirmation) {
  std::set<int> alive;
  for (const CandidateRow& row : candidates)
    if (row.infeasible.empty() && !HasFailed(trials, row.id)) alive.insert(row.id);
  std::map<int, std::set<std::pair<int, int>>> seen;  // round -> (candidate, copy)
  for (const TrialRow& trial : trials)
    if (trial.confirmation == confirmation && alive.count(trial.candidate))
      seen[trial.round].insert({trial.candidate, trial.copy});
  int done = 0;
  for (const auto& [round, trials_of_round] : seen) {
    // Confirmation rounds have whoever was chosen, and the anchor twice.
    const bool whole = confirmation ? trials_of_round.size() >= 3 && trials_of_round.count({0, 1})
                                    : trials_of_round.size() == alive.size() + 1;
    done += whole ? 1 : 0;
  }
  return done;
}

Results Assemble(const SweepMeta& meta, const SweepProgress& progress,
                 const std::vector<CandidateRow>& candidates, const std::vector<TrialRow>& trials) {
  Results results;
  results.model = meta.model;
  results.definition = meta.definition;
  results.command_line = meta.command_line;
  results.version = meta.version;
  results.commit = meta.commit;
  results.started_at = meta.started_at;
  results.updated_at = progress.updated_at;
  results.machine = meta.machine;
  results.budget = meta.budget;
  results.model_facts = meta.model_facts;
  results.rounds_planned = progress.rounds_planned;
  results.finished = progress.finished;
  results.rounds_done = RoundsDone(candidates, trials, false);
  results.confirmation_rounds = RoundsDone(candidates, trials, true);
  for (const TrialRow& trial : trials) results.elapsed_s += trial.seconds;
  for (const CandidateRow& row : candidates)
    results.candidates.push_back(CandidateFrom(row, trials));
  for (Objective objective : meta.definition.objectives)
    AddObjective(objective, candidates, trials, results);
  AddWarnings(trials, results);
  return results;
}

Result<Results> LoadResults(const std::string& folder) {
  PINION_ASSIGN(const auto store, Store::Open(folder + "/results.db", Store::Mode::kRead));
  PINION_ASSIGN(const SweepMeta meta, ReadMeta(*store));
  PINION_ASSIGN(const SweepProgress progress, ReadProgress(*store));
  PINION_ASSIGN(const std::vector<CandidateRow> candidates, store->Candidates());
  PINION_ASSIGN(const std::vector<TrialRow> trials, store->Trials());
  return Assemble(meta, progress, candidates, trials);
}

}  // namespace pinion::harness
