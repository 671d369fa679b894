#include "harness/compare/compare.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "engine/run/settings.h"
#include "harness/stats/holm.h"
#include "harness/stats/metrics.h"
#include "harness/stats/rules.h"
#include "harness/stats/verdict.h"
#include "harness/store/store.h"

namespace pinion::harness {
namespace {

// The properties of a sweep from its store; null if the store lacks them.
struct Run {
  std::string path;
  Json machine, budget, definition, origin, trial_limit;
  std::vector<CandidateRow> candidates;
  std::vector<TrialRow> trials;
};

Result<Run> ReadRun(const std::string& path) {
  Run run;
  run.path = path;
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  PINION_ASSIGN(const auto store, Store::Open(folder ? path + "/results.db" : path));
  for (const auto& [key, json] :
       {std::pair("machine", &run.machine), std::pair("budget", &run.budget),
        std::pair("definition", &run.definition), std::pair("origin", &run.origin),
        std::pair("trial_limit_s", &run.trial_limit)}) {
    PINION_ASSIGN(const std::optional<Json> found, store->Meta(key));
    if (found) *json = *found;
  }
  PINION_ASSIGN(run.candidates, store->Candidates());
  PINION_ASSIGN(run.trials, store->Trials());
  return run;
}

Json Part(const Json& object, const char* key) {
  const Json* value = object.Find(key);
  return value ? *value : Json();
}

// The differences that make the two runs measurements of different things.
std::vector<std::string> Obstacles(const Run& a, const Run& b) {
  std::vector<std::string> obstacles;
  const auto differs = [&](const std::string& what, const Json& of_a, const Json& of_b) {
    if (of_a == of_b) return;
    obstacles.push_back(
        StrCat(what, " is ", of_a.Dump(), " in one and ", of_b.Dump(), " in the other"));
  };
  for (const char* key : {"cpu_model", "packages", "cores", "cpus", "l3_bytes", "nodes"})
    differs(StrCat("the machine's ", key), Part(a.machine, key), Part(b.machine, key));
  differs("the list of CPUs to use", Part(a.budget, "cpus"), Part(b.budget, "cpus"));
  differs("the CPU quota", Part(a.budget, "cpu_quota"), Part(b.budget, "cpu_quota"));
  differs("the model", Part(a.origin, "model"), Part(b.origin, "model"));
  for (const char* key : {"workload", "seed"})
    differs(StrCat("the ", key), Part(a.definition, key), Part(b.definition, key));
  differs("the limit of a trial [s]", a.trial_limit, b.trial_limit);
  const auto measured = [](const Run& run) {
    return std::any_of(run.trials.begin(), run.trials.end(),
                       [](const TrialRow& trial) { return trial.ok; });
  };
  if (!measured(a) || !measured(b)) return obstacles;
  differs("whether trials ran an offline batch", RanBatch(a.trials), RanBatch(b.trials));
  differs("the reduced number of prompts of the offline batch (0: not reduced)",
          ReducedBatch(a.trials), ReducedBatch(b.trials));
  return obstacles;
}

// The identity of a configuration in both runs: all that decides how it runs. If several engines
// race, labels begin with their names.
std::string Identity(const CandidateRow& row) {
  Json identity = Json::MakeObject();
  for (const SettingRow& setting : SettingRows())
    identity.Set(setting.key, setting.get(row.configuration));
  for (const auto& [key, value] : row.settings)
    if (!FindSetting(key)) identity.Set(key, value);  // an engine's own
  const bool is_race = row.label.starts_with(row.engine + ": ");
  if (is_race) identity.Set("engine", row.engine);
  return identity.Dump();
}

struct RoundKey {
  Phase phase;
  int round;
  auto operator<=>(const RoundKey&) const = default;
};
struct MetricKey {
  std::string metric;
  LoadLevel level;
  auto operator<=>(const MetricKey&) const = default;
};
// Values of a candidate by metric, round and copy.
using Values = std::map<MetricKey, std::map<RoundKey, std::map<int, double>>>;

Values ValuesOf(const Run& run, int candidate) {
  Values values;
  for (const TrialRow& trial : run.trials) {
    if (trial.candidate != candidate || !trial.ok) continue;
    for (const MetricValue& sample : trial.samples)
      if (const MetricInfo* metric = FindMetric(sample.metric);
          metric && !metric->describes && sample.value > 0)
        values[{sample.metric, sample.level}][{trial.phase, trial.round}][trial.copy] =
            sample.value;
  }
  return values;
}

double Sign(const std::string& metric) { return FindMetric(metric)->more_is_better ? 1 : -1; }

double MeanLog(const std::map<int, double>& copies) {
  double sum = 0;
  for (const auto& [copy, value] : copies) sum += std::log(value);
  return sum / static_cast<double>(copies.size());
}

// The noise floor, from the baseline's second trials in both runs.
double FloorOf(const Values& a, const Values& b, const MetricKey& key, size_t n) {
  std::vector<double> log_ratios;
  for (const Values* values : {&a, &b}) {
    const auto found = values->find(key);
    if (found == values->end()) continue;
    for (const auto& [round, copies] : found->second)
      if (copies.count(0) && copies.count(1))
        log_ratios.push_back(std::log(copies.at(1) / copies.at(0)));
  }
  return NoiseFloor(log_ratios, n);
}

MetricDifference Paired(const MetricKey& key, const std::map<RoundKey, std::map<int, double>>& a,
                        const std::map<RoundKey, std::map<int, double>>& b,
                        const std::function<double(size_t)>& floor) {
  MetricDifference difference;
  difference.metric = key.metric;
  difference.level = key.level;
  std::vector<double> of_a, of_b;
  for (const auto& [round, copies] : a) {
    const auto other = b.find(round);
    if (other == b.end()) continue;
    of_a.push_back(MeanLog(copies));
    of_b.push_back(MeanLog(other->second));
    difference.log_ratios.push_back(Sign(key.metric) * (of_b.back() - of_a.back()));
  }
  if (difference.log_ratios.empty()) return difference;
  difference.a = std::exp(Median(of_a));
  difference.b = std::exp(Median(of_b));
  difference.floor = floor(difference.log_ratios.size());
  return difference;
}

MetricDifference::Kind KindOf(const MetricDifference& difference, double threshold) {
  using Kind = MetricDifference::Kind;
  if (!difference.ratio.interval) return Kind::kTooFewRounds;
  const double ratio = difference.ratio.median;
  const bool beyond = !difference.ratio.interval->Holds(1) && std::abs(ratio - 1) > threshold &&
                      ExceedsFloor(ratio, difference.floor);
  return !beyond ? Kind::kSame : ratio > 1 ? Kind::kBetter : Kind::kWorse;
}

// Gives every difference the interval of the level at which Holm's procedure decides it.
void Decide(RunComparison& comparison) {
  std::vector<double> p_values;
  for (const MetricDifference& one : comparison.differences)
    p_values.push_back(SignTest(MergeNeighbours(one.log_ratios)));
  const std::vector<Corrected> corrected = Holm(p_values, kFamilyLevel);
  for (size_t i = 0; i < corrected.size(); ++i) {
    MetricDifference& one = comparison.differences[i];
    one.ratio = EstimateRatio(one.log_ratios, corrected[i].level);
    one.kind = KindOf(one, comparison.threshold);
  }
}

std::string WhatOf(const Run& run) {
  const auto text = [&](const char* key) {
    const Json value = Part(run.origin, key);
    return value.is_string() ? value.string() : std::string();
  };
  return StrCat("version ", text("version"), ", commit ", text("commit"), ", ", text("started_at"));
}

void AddNotes(const Run& a, const Run& b, RunComparison& comparison) {
  const Json kernel_a = Part(a.machine, "kernel"), kernel_b = Part(b.machine, "kernel");
  if (!(kernel_a == kernel_b))
    comparison.notes.push_back(StrCat("the kernel is ", kernel_a.Dump(), " in one and ",
                                      kernel_b.Dump(), " in the other"));
  const Json engine_a = Part(a.definition, "engines"), engine_b = Part(b.definition, "engines");
  if (!(engine_a == engine_b))
    comparison.notes.emplace_back("the runs measured two engines, not two versions of one");
  const auto missing = [&](const Run& from, const Run& in) {
    std::set<std::string> known;
    for (const CandidateRow& row : in.candidates) known.insert(Identity(row));
    for (const CandidateRow& row : from.candidates)
      if (row.infeasible.empty() && !known.count(Identity(row)))
        comparison.notes.push_back(StrCat("only in ", from.path, ": ", row.label));
  };
  missing(a, b);
  missing(b, a);
}

void CompareCandidate(const Run& a, const CandidateRow& of_a, const Run& b,
                      const CandidateRow& of_b, const Values& baseline_a, const Values& baseline_b,
                      RunComparison& comparison) {
  const Values values_a = ValuesOf(a, of_a.id), values_b = ValuesOf(b, of_b.id);
  for (const MetricInfo& metric : Metrics()) {
    for (const auto& [key, rounds] : values_a) {
      const auto other = values_b.find(key);
      if (key.metric != metric.name || other == values_b.end()) continue;
      MetricDifference difference = Paired(key, rounds, other->second, [&](size_t n) {
        return FloorOf(baseline_a, baseline_b, key, n);
      });
      difference.candidate = of_a.label;
      if (!difference.log_ratios.empty()) comparison.differences.push_back(std::move(difference));
    }
  }
}

}  // namespace

const char* Name(MetricDifference::Kind kind) {
  constexpr const char* kNames[] = {"same", "better", "worse", "too few rounds"};
  return kNames[static_cast<size_t>(kind)];
}

size_t RunComparison::Count(MetricDifference::Kind kind) const {
  return static_cast<size_t>(
      std::count_if(differences.begin(), differences.end(),
                    [kind](const MetricDifference& one) { return one.kind == kind; }));
}

Result<RunComparison> CompareAnyway(const std::string& path_a, const std::string& path_b,
                                    double threshold) {
  PINION_ASSIGN(const Run a, ReadRun(path_a));
  PINION_ASSIGN(const Run b, ReadRun(path_b));
  RunComparison comparison{path_a, path_b, WhatOf(a), WhatOf(b), threshold, {}, {}, {}};
  AddNotes(a, b, comparison);
  comparison.obstacles = Obstacles(a, b);
  if (!comparison.obstacles.empty()) return comparison;
  const Values baseline_a = ValuesOf(a, 0), baseline_b = ValuesOf(b, 0);
  for (const CandidateRow& of_a : a.candidates)
    for (const CandidateRow& of_b : b.candidates)
      if (Identity(of_a) == Identity(of_b))
        CompareCandidate(a, of_a, b, of_b, baseline_a, baseline_b, comparison);
  Decide(comparison);
  const size_t needed = LeastRoundsFor(comparison.differences.size());
  size_t rounds = 0;
  for (const MetricDifference& difference : comparison.differences)
    rounds = std::max(rounds, difference.log_ratios.size());
  if (comparison.differences.empty()) {
    comparison.obstacles.emplace_back("no configuration was measured in the same round of both");
  } else if (rounds < needed) {
    comparison.obstacles.push_back(
        StrCat("they have ", Counted(rounds, "round"), " in common and a verdict needs ", needed,
               " to decide on ", comparison.differences.size(),
               " differences; continue with --resume, a larger --budget and --rounds ", needed,
               " or more"));
  }
  return comparison;
}

Result<RunComparison> Compare(const std::string& path_a, const std::string& path_b,
                              double threshold) {
  PINION_ASSIGN(RunComparison comparison, CompareAnyway(path_a, path_b, threshold));
  if (comparison.obstacles.empty()) return comparison;
  return Fail(ErrorCode::kUsage, StrCat(path_a, " and ", path_b,
                                        " cannot be compared: ", Join(comparison.obstacles, "; ")));
}

}  // namespace pinion::harness
