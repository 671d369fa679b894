#include "harness/sweep/recording.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/stats/metrics.h"
#include "harness/store/store.h"
#include "harness/sweep/protocol.h"
#include "harness/sweep/score.h"
#include "harness/sweep/state.h"

namespace pinion::harness {
namespace {

constexpr uint64_t kMaxCsvBytes = uint64_t{1} << 28;

// Rounds in which both of the baseline's trials have a score; in others nothing can be compared.
std::map<RoundKey, RecordedSweep::Round> RoundsOfBaseline(const std::vector<TrialRow>& trials,
                                                          Objective objective,
                                                          const ScoreRule& rule) {
  const auto again = ScoresOf(trials, 0, 1, objective, rule);
  std::map<RoundKey, RecordedSweep::Round> rounds;
  for (const auto& [key, score] : ScoresOf(trials, 0, 0, objective, rule))
    if (const auto second = again.find(key); second != again.end())
      rounds[key] = {score, second->second, {}};
  return rounds;
}

RecordedSweep RecordedFrom(const Definition& definition,
                           const std::vector<CandidateRow>& candidates,
                           const std::vector<TrialRow>& trials, Objective objective) {
  const ScoreRule rule(definition);
  std::map<RoundKey, RecordedSweep::Round> rounds = RoundsOfBaseline(trials, objective, rule);
  RecordedSweep recorded;
  for (const CandidateRow& row : candidates) {
    const bool failed = !row.is_baseline && HasFailed(trials, row.id);
    if (!row.infeasible.empty() || failed) continue;
    RecordedSweep::Contestant one{row.label, {}, {}};
    const size_t index = recorded.contestants.size();
    for (const auto& [key, score] : ScoresOf(trials, row.id, 0, objective, rule)) {
      const auto round = rounds.find(key);
      if (round == rounds.end()) continue;
      round->second.scores[index] = score;
      one.log_ratios.push_back(score - round->second.baseline);
    }
    for (const TrialRow& trial : trials)
      if (trial.candidate == row.id) one.seconds.push_back(trial.seconds);
    if (!one.log_ratios.empty()) recorded.contestants.push_back(std::move(one));
  }
  for (auto& [key, round] : rounds)
    if (key.first == Phase::kRace) recorded.rounds.push_back(std::move(round));
  return recorded;
}

}  // namespace

Result<Recording> ReadRecording(const std::string& path, const std::string& column) {
  PINION_ASSIGN(const std::string text, ReadFile(path, kMaxCsvBytes));
  const std::vector<std::string> lines = Split(text, '\n');
  std::vector<std::string> header = Split(lines.front(), ',');
  if (!header.empty() && header.back().ends_with("\r")) header.back().pop_back();
  const auto found = std::find(header.begin(), header.end(), column);
  if (text.empty())
    return Fail(ErrorCode::kUsage, StrCat(path, " is empty: a series is a CSV file with a header"));
  if (found == header.end())
    return Fail(ErrorCode::kUsage, StrCat(path, " has no column '", column, "'; it has ",
                                          Join(header, ", "), ": name one with --metric"));
  const auto index = static_cast<size_t>(found - header.begin());
  const MetricInfo* metric = FindMetric(column);
  const double sign = metric && !metric->more_is_better ? -1 : 1;
  Recording recording;
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty() || lines[i] == "\r") continue;
    const std::vector<std::string> cells = Split(lines[i], ',');
    const std::string_view cell = index < cells.size() ? Trim(cells[index]) : "";
    const auto value = ParseDouble(cell, column);
    if (!value || !(*value > 0) || !std::isfinite(*value))
      return Fail(ErrorCode::kUsage, StrCat(path, ", line ", i + 1, ": '", column,
                                            "' must be a number above 0, not '", cell, "'"));
    recording.log_speeds.push_back(sign * std::log(*value));
  }
  if (recording.log_speeds.size() < 2)
    return Fail(ErrorCode::kUsage, StrCat(path, " has ", recording.log_speeds.size(),
                                          " rows, which is too few for a replay"));
  return recording;
}

Result<RecordedSweep> ReadRecordedSweep(const std::string& database,
                                        const std::optional<std::string>& objective_name) {
  PINION_ASSIGN(const auto store, Store::Open(database));
  PINION_ASSIGN(const SweepMeta meta, ReadMeta(*store));
  PINION_ASSIGN(const std::vector<CandidateRow> candidates, store->Candidates());
  PINION_ASSIGN(const std::vector<TrialRow> trials, store->Trials());
  Objective objective = meta.definition.objectives.front();
  if (objective_name) {
    PINION_ASSIGN(objective, ParseObjective(*objective_name));
  }
  RecordedSweep recorded = RecordedFrom(meta.definition, candidates, trials, objective);
  if (recorded.rounds.size() < 2 || recorded.contestants.size() < 2)
    return Fail(ErrorCode::kUsage,
                StrCat(database, " holds ", Counted(recorded.rounds.size(), "whole round"), " of ",
                       Counted(recorded.contestants.size(), "candidate"), " with ", Name(objective),
                       "; a replay needs two of each"));
  return recorded;
}

}  // namespace pinion::harness
