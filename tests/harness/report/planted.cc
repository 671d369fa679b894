// Made-up results for the tests of this folder.

#include "planted.h"

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/run/options.h"
#include "harness/stats/distributions.h"

namespace pinion::harness {
namespace {

constexpr int kRounds = 6;

Estimate Around(double median, double spread) {
  return {kRounds, median, median * spread / 3,
          Interval{median * (1 - spread), median * (1 + spread), 0.968}};
}

Series MakeSeries(const std::string& metric, int concurrency, double median) {
  Series series{metric, concurrency, {}, Around(median, 0.02)};
  for (int round = 1; round <= kRounds; ++round)
    series.samples.push_back({round, false, median * (1 + 0.002 * (round - 3)), round == 3});
  return series;
}

// Work under a roof of 25 GB/s and 200 GFLOP/s a thread: decode at 1, prefill at 128 operations a
// byte.
void Describe(Candidate& candidate, int threads, double speed) {
  const std::pair<const char*, double> rates[] = {{"prefill_flops_per_s", 128e9 * speed},
                                                  {"prefill_bytes_per_s", 1e9 * speed},
                                                  {"decode_flops_per_s", 20e9 * speed},
                                                  {"decode_bytes_per_s", 20e9 * speed},
                                                  {"ceiling_flops_per_s", 200e9 * threads},
                                                  {"ceiling_bytes_per_s", 25e9 * threads},
                                                  {"steal_share", 0.012},
                                                  {"cpu_pressure_share", 0.04}};
  for (const auto& [metric, value] : rates)
    candidate.series.push_back(MakeSeries(metric, 0, value));
  for (const int clients : {1, 8}) {
    candidate.series.push_back(MakeSeries("kv_used_share", clients, 0.1 * clients));
    candidate.series.push_back(MakeSeries("prefix_hit_share", clients, 0.25));
    candidate.series.push_back(MakeSeries("preemptions", clients, clients == 8 ? 3 : 0));
    for (const char* metric : {"ttft_s", "itl_s"}) {
      Distribution one{metric, clients, 96, {}};
      for (int i = 0; i <= 20; ++i) one.quantiles.push_back((0.1 + 0.01 * i) * clients / speed);
      candidate.distributions.push_back(std::move(one));
    }
  }
}

// Passes 4 * speed requests/s and fails half as much again.
SloFinding MakeSlo(double speed) {
  SloFinding slo;
  for (const double load : {2.0, 4.0, 6.0, 8.0}) {
    const size_t good = load <= 4 ? 60 : 60 - static_cast<size_t>(6 * load);
    SloLevel level{load * speed, 3, good, 60, static_cast<double>(good) / 60, 0, {}, load <= 4};
    level.fitted = level.share;
    level.interval = ExactShareInterval(good, 60);
    slo.boundary.levels.push_back(level);
  }
  slo.boundary.pass = 1;
  slo.boundary.fail = 2;
  slo.boundary.is_cliff = slo.boundary.is_settled = true;
  slo.boundary.runs = 12;
  return slo;
}

// `speed`: relative to the defaults, in everything.
void Measure(Candidate& candidate, int threads, double speed) {
  candidate.status = CandidateStatus::kOk;
  candidate.isa = "avx512_bf16";
  candidate.dtype = "bfloat16";
  candidate.threads = threads;
  candidate.ranks = 1;
  candidate.plan.ranks = {{0, {0, 1}, {0}, 2}};
  candidate.series = {MakeSeries("output_tokens_per_s", 0, 512 * speed)};
  for (const int clients : {1, 8}) {
    const double tpot_s = 0.021 * (1 + 0.1 * clients) / speed;
    candidate.series.push_back(MakeSeries("ttft_s", clients, 0.31 * clients / speed));
    candidate.series.push_back(MakeSeries("tpot_s", clients, tpot_s));
    candidate.series.push_back(MakeSeries("e2el_s", clients, 0.31 * clients / speed + 63 * tpot_s));
    candidate.series.push_back(
        MakeSeries("output_tokens_per_s", clients, 40 * clients * speed / (1 + 0.05 * clients)));
  }
  candidate.series.push_back(MakeSeries("peak_rss_bytes", 0, 3.1e9));
  candidate.series.push_back(MakeSeries("slo_load", 0, 5 * speed));
  Describe(candidate, threads, speed);
  candidate.predicted = Json::Object{{"output_tokens_per_s", 800.0 * threads}};
  candidate.trials = kRounds;
  candidate.seconds = 8.5 * kRounds;
  for (const Objective objective :
       {Objective::kThroughput, Objective::kLatency, Objective::kBalanced}) {
    Comparison comparison{objective, {}, {}};
    if (!candidate.is_baseline) {
      comparison.ratio = Around(speed, 0.025);
      for (int round = 1; round <= kRounds; ++round)
        comparison.ratios.push_back({round, false, speed * (1 + 0.004 * (round - 3)), false});
    }
    candidate.comparisons.push_back(comparison);
  }
}

Candidate Add(Results& results, std::vector<Setting> settings, const std::string& hostile) {
  Candidate candidate;
  candidate.id = static_cast<int>(results.candidates.size());
  candidate.is_baseline = candidate.id == 0;
  std::vector<std::string> label;
  for (const Setting& setting : settings) {
    if (setting.key == "threads_bind") candidate.configuration.options.threads_bind = setting.value;
    label.push_back(setting.key + "=" + setting.value + hostile);
  }
  candidate.settings = std::move(settings);
  candidate.engine = "pinion";
  candidate.label = candidate.is_baseline ? "default" : Join(label, " ");
  return candidate;
}

Verdict MakeVerdict(Objective objective, Outcome outcome, int recommended, double ratio) {
  Verdict verdict;
  verdict.objective = Name(objective);
  verdict.outcome = outcome;
  verdict.recommended = recommended;
  verdict.best = 1;
  verdict.ratio = recommended == 0 ? Estimate{kRounds, 1, 0, std::nullopt} : Around(ratio, 0.025);
  verdict.best_ratio = Around(ratio, 0.025);
  verdict.floor = 0.021;
  verdict.rounds = kRounds;
  verdict.confirmed = outcome == Outcome::kWinner;
  return verdict;
}

void AddCandidates(Results& results, const std::string& hostile) {
  Candidate candidate = Add(results, {}, hostile);
  Measure(candidate, 1, 1);
  candidate.slo = MakeSlo(1);
  results.candidates.push_back(candidate);
  candidate = Add(results, {{"threads_bind", "0-1"}, {"isa", "avx2" + hostile}}, hostile);
  Measure(candidate, 2, 1.42);
  candidate.slo = MakeSlo(1.5);
  candidate.suspect_reasons = {"round 3: steal 4.1 %" + hostile};
  results.candidates.push_back(candidate);
  candidate = Add(results, {{"threads_bind", "nobind"}}, hostile);
  Measure(candidate, 2, 0.83);
  candidate.status = CandidateStatus::kDropped;
  candidate.reason = "worse than the best so far after round 4" + hostile;
  candidate.same_as = {"threads_bind=all" + hostile};
  results.candidates.push_back(candidate);
  candidate = Add(results, {{"tensor_parallel", "2"}}, hostile);
  candidate.status = CandidateStatus::kFailed;
  candidate.reason = "ended by signal 9 in round 1" + hostile;
  candidate.log_tail = "12:00:01 E out of memory" + hostile;
  candidate.log_path = "logs/3-1.log";
  results.candidates.push_back(candidate);
  candidate = Add(results, {{"tensor_parallel", "64"}}, hostile);
  candidate.status = CandidateStatus::kInfeasible;
  candidate.reason = "64 ranks need 64 CPUs, 2 are allowed" + hostile;
  results.candidates.push_back(candidate);
  results.candidates.push_back(Add(results, {{"max_num_seqs", "16"}}, hostile));
}

}  // namespace

Results PlantedResults(const std::string& hostile) {
  Results results;
  results.model = "preset:tiny" + hostile;
  results.command_line = "build/pinion sweep preset:tiny --out out/planted" + hostile;
  results.version = "0.1.0";
  results.commit = "0123456789ab";
  results.started_at = "2026-11-20T18:00:00Z";
  results.updated_at = "2026-11-20T18:08:20Z";
  results.definition.rounds = kRounds;
  results.definition.workload.concurrency = {1, 8};
  results.definition.workload.slo = SloTarget{{.ttft_s = 0.5}};
  results.machine.Set("cpu_model", "Imagined CPU" + hostile);
  results.machine.Set("cores", 2);
  results.machine.Set("cpus", 2);
  results.machine.Set("nodes", *Json::Parse(R"([{"id":0,"cpus":2,"cpu_list":"0-1"}])"));
  results.budget.Set("cpus", std::vector<int>{0, 1});
  results.budget.Set("memory_total_bytes", int64_t{25} << 30);
  results.model_facts.Set("architecture", "LlamaForCausalLM" + hostile);
  results.provenance = *Json::Parse(R"({
    "compiler":{"version":"12.2.0","openmp":201511},"kernel":{"release":"6.1"},"environment":{},
    "topology_xml":"<topology/>",
    "hygiene":{"warnings":1,"checks":[
      {"name":"quota","state":"ok","found":"none","reason":"all CPUs may be used","fix":""},
      {"name":"governor","state":"warn","found":"powersave on 2 CPUs","reason":"clocks vary",
       "fix":"cpupower frequency-set -g performance"},
      {"name":"turbo","state":"not available","found":"","reason":"no driver says","fix":""},
      {"name":"counter_numa","state":"ok","found":"resctrl","reason":"traffic","fix":""},
      {"name":"counter_energy","state":"not available","found":"","reason":"rapl: no package",
       "fix":"modprobe intel_rapl_msr"}]}})");
  results.provenance.Set("engine", Json::Object{{"commit", results.commit + hostile}});
  AddCandidates(results, hostile);
  results.floors = {0.021, 0.021, 0.021};
  results.verdicts = {MakeVerdict(Objective::kThroughput, Outcome::kWinner, 1, 1.42),
                      MakeVerdict(Objective::kLatency, Outcome::kNoDifference, 0, 1.01),
                      MakeVerdict(Objective::kBalanced, Outcome::kWinner, 1, 1.12)};
  results.verdicts[2].tied = {2};
  results.rounds_done = results.rounds_planned = results.confirmation_rounds = kRounds;
  results.elapsed_s = 500;
  results.finished = true;
  if (!hostile.empty()) results.warnings = {"a warning" + hostile};
  return results;
}

Results CloseResults() {
  constexpr double kNoise[kRounds] = {1.02, 0.99, 1.01, 0.98, 1.00, 1.01};
  constexpr double kSlower[kRounds] = {0.98, 0.99, 1.01, 1.02, 1.03, 1.01};
  Results results = PlantedResults();
  const auto change = [](Candidate& candidate, const double(&by)[kRounds], double median) {
    for (Series& series : candidate.series) {
      const bool is_time = series.metric == "e2el_s";
      const auto slower = [&](double factor) { return is_time ? factor : 1 / factor; };
      for (size_t i = 0; i < kRounds; ++i) series.samples[i].value *= slower(by[i]);
      series.estimate.median *= slower(median);
    }
  };
  Candidate &second = results.candidates[1], &third = results.candidates[2];
  change(second, kNoise, 1);
  third.series = second.series;
  change(third, kSlower, 1.01);
  return results;
}

Results ManyResults(int count) {
  Results results = PlantedResults();
  const char* bindings[] = {"auto", "all", "0-1", "nobind"};
  results.candidates.resize(1);
  for (int i = 1; i < count; ++i) {
    const int threads = 1 << (i % 4);
    Candidate candidate = Add(results,
                              {{"threads_bind", bindings[i % 4]},
                               {"max_num_seqs", StrCat(i)},
                               {"kv_cache_space", StrCat(1 + i % 3)}},
                              "");
    candidate.configuration.options.kv_cache_bytes = static_cast<uint64_t>(1 + i % 3) << 30;
    Measure(candidate, threads, 0.6 + 0.8 * ((i * 37) % count) / count);
    results.candidates.push_back(candidate);
  }
  results.verdicts.resize(1);
  const auto best = std::max_element(
      results.candidates.begin(), results.candidates.end(), [](const auto& a, const auto& b) {
        return a.Ratio(Objective::kThroughput) < b.Ratio(Objective::kThroughput);
      });
  results.verdicts[0] = MakeVerdict(Objective::kThroughput, Outcome::kWinner, best->id,
                                    best->Ratio(Objective::kThroughput));
  results.verdicts[0].best = best->id;
  results.definition.objectives = {Objective::kThroughput};
  results.floors = {0.021};
  return results;
}

Results FailedResults() {
  Results results = PlantedResults();
  results.candidates.erase(results.candidates.begin() + 1, results.candidates.begin() + 3);
  Candidate& baseline = results.candidates.front();
  baseline.series.clear();
  baseline.plan = {};
  baseline.slo.reset();
  baseline.distributions.clear();
  baseline.comparisons.clear();
  baseline.status = CandidateStatus::kFailed;
  baseline.reason = "ended by signal 11 in round 1";
  baseline.log_tail = "12:00:01 E it broke";
  baseline.log_path = "logs/0-1.log";
  for (size_t i = 0; i < results.verdicts.size(); ++i)
    results.verdicts[i] = MakeVerdict(results.definition.objectives[i], Outcome::kNoData, 0, 1);
  return results;
}

Results NoDifferenceResults() {
  Results results = PlantedResults();
  for (size_t i = 0; i < results.verdicts.size(); ++i) {
    results.verdicts[i] =
        MakeVerdict(results.definition.objectives[i], Outcome::kNoDifference, 0, 1.01);
    results.verdicts[i].tied = {1, 2};
  }
  return results;
}

Results LongNamesResults() {
  const std::string name(60, 'm');
  Results results = PlantedResults();
  results.model = name;
  for (Candidate& candidate : results.candidates) {
    candidate.engine = name;
    candidate.label = StrCat(name, ": ", candidate.label);
    for (Setting& setting : candidate.settings) setting.key = "env." + name;
  }
  for (Verdict& verdict : results.verdicts) verdict.tied = {2};
  return results;
}

Results DefaultsBestResults() {
  Results results = PlantedResults();
  double ratio = 0.74;
  for (size_t i = 0; i < results.verdicts.size(); ++i, ratio += 0.03)
    results.verdicts[i] =
        MakeVerdict(results.definition.objectives[i], Outcome::kBaselineBest, 0, ratio);
  return results;
}

Results MixedResults() {
  Results results = DefaultsBestResults();
  results.verdicts[1] =
      MakeVerdict(results.definition.objectives[1], Outcome::kSmallGain, 0, 1.015);
  results.verdicts[1].best_ratio.interval = {1.006, 1.019, 0.968};
  results.verdicts[2] = NoDifferenceResults().verdicts[2];
  return results;
}

Results MidwayResults() {
  Results results = NoDifferenceResults();
  for (Verdict& verdict : results.verdicts) {
    verdict.outcome = Outcome::kTooFewRounds;
    verdict.best_ratio = {2, 1.04, 0, std::nullopt};
    verdict.floor = 0;
    verdict.tied.clear();
  }
  for (Candidate& candidate : results.candidates)
    for (Series& series : candidate.series) series.estimate.interval = std::nullopt;
  results.rounds_done = 2;
  results.confirmation_rounds = 0;
  results.finished = false;
  return results;
}

Results SingleResult() {
  Results results = PlantedResults();
  results.candidates.resize(1);
  for (Verdict& verdict : results.verdicts) {
    verdict.outcome = Outcome::kBaselineBest;
    verdict.recommended = verdict.best = 0;
    verdict.tied.clear();
  }
  return results;
}

}  // namespace pinion::harness
