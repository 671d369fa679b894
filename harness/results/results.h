#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/host/binding.h"
#include "harness/load/slo_search.h"
#include "harness/space/definition.h"
#include "harness/space/settings.h"
#include "harness/stats/estimate.h"
#include "harness/stats/metrics.h"
#include "harness/stats/quantiles.h"
#include "harness/stats/verdict.h"

// Everything a sweep knows, finished or still running, as plain data. harness/sweep fills it from
// the store; harness/report renders it and never sees the
// database.

namespace pinion::harness {

// One number out of one trial.
struct Sample {
  int round = 0;              // 1, 2, ...
  bool confirmation = false;  // from a fresh round after the choice was made
  double value = 0;
  bool suspect = false;  // disturbed; kept, see Candidate::suspect_reasons
};

// One metric of one candidate over all rounds, with at least one sample.
struct Series {
  std::string metric;  // "output_tokens_per_s", "ttft_s", ...: see Metrics()
  LoadLevel level;
  std::vector<Sample> samples;
  Estimate estimate;
};

// The loads tried against the requested service level, over all rounds.
struct SloFinding {
  SloSearchOptions options;
  SloBoundary boundary;
};

// One candidate against the baseline in one objective, round by round.
struct Comparison {
  Objective objective = Objective::kThroughput;
  std::vector<Sample> ratios;  // 1.05: 5 % better than the baseline in that round
  Estimate ratio;              // n = 0 for the baseline itself
};

enum class CandidateStatus {
  kPending,
  kOk,
  kInfeasible,
  kFailed,
  kTooSlow,
  kDropped,
  kPruned,
  kDisqualified
};
// "pending", "ok", "infeasible", "failed", "too slow" (its trials ended without an answer in the
// time in which the baseline answers: it is slower, and by how much is unknown), "dropped",
// "pruned" (not measured: it cannot win), "disqualified" (it broke a constraint)
const char* Name(CandidateStatus status);

// Whether its last trials gave no figures, for any reason.
constexpr bool GaveOut(CandidateStatus status) {
  return status == CandidateStatus::kFailed || status == CandidateStatus::kTooSlow;
}

struct Candidate {
  int id = 0;                     // stable within the sweep; the baseline is 0
  std::string engine;             // its name in the definition
  std::string label;              // "default", or "threads_bind=0-1 isa=avx2"
  std::vector<Setting> settings;  // those unlike the baseline, in the order of the space
  Configuration configuration;    // all of it but its engine's own settings
  bool is_baseline = false;
  CandidateStatus status = CandidateStatus::kPending;
  std::string reason;                // why it is infeasible, dropped, pruned, too slow or failed
  std::string log_tail;              // last lines of the failed trial's log
  std::string log_path;              // of its last trial, relative to the sweep's folder
  std::vector<std::string> same_as;  // labels of grid points with the same effective plan

  // As the engine reported it at start; empty until a trial has run.
  std::string isa, dtype;
  int threads = 0, ranks = 0;
  Plan plan;            // of all engines behind the server; without ranks: unknown
  std::string command;  // for another engine: how a user would start it

  Json predicted;  // before any trial: {"output_tokens_per_s","ttft_s","tpot_s",...}; null without
                   // --probe

  std::vector<Series> series;
  std::vector<Distribution> distributions;
  std::optional<SloFinding> slo;
  std::string no_ceilings_because;           // why no trial measured the machine's limits
  std::vector<Comparison> comparisons;       // one per objective of the sweep
  std::vector<std::string> suspect_reasons;  // "round 3: steal 4.1 %"
  int trials = 0;                            // all of them, failed ones too
  double seconds = 0;                        // the time that all trials took

  const Series* Find(const std::string& metric, LoadLevel level) const;
  const Comparison* Find(Objective objective) const;
  // Median ratio to the baseline; 1 for the baseline itself, 0 if it was not compared.
  double Ratio(Objective objective) const;
};

// One objective's noise, from the baseline's two trials in each round.
struct Noise {
  size_t pairs = 0;
  double autocorrelation = 0;  // lag 1, of the pairs' differences
  double mad = 0;              // of the differences, in logs
};

// How a load was measured, in medians over the trials that have it.
struct MeasuredLoad {
  LoadLevel level;
  size_t trials = 0;
  size_t whole = 0;  // of them: without a steady part, so that all of the load counts
  std::optional<size_t>
      by_time;  // that ended by their time, not after all requests; unset: unknown
  std::optional<double> start_s, length_s;  // of the steady part; unset: no trial has one
  double requests = 0;                      // that count
};

// Windows and circumstances of the loads of trials.
struct MeasuredLoads {
  std::vector<MeasuredLoad> each;   // closed and open loops
  std::optional<double> warm_up_s;  // of a trial, the median
  size_t trials = 0;                // that tell where their load generator ran
  size_t apart = 0;                 // of them: on CPUs that neither engine nor front end used
};

struct Results {
  // The request.
  std::string model;  // as given: a folder, preset:NAME, org/name
  Definition definition;
  std::string command_line;
  std::string version;     // as `pinion --version` prints it
  std::string commit;      // of the source it was built from; "" if unknown
  std::string started_at;  // ISO 8601, UTC
  std::string updated_at;

  // The machine and the model.
  Json machine;      // MachineFingerprint
  Json budget;       // {"cpus":[],"cpu_quota","memory_total_bytes","reasons":[]}
  Json model_facts;  // {"architecture","parameters","weight_bytes","kv_bytes_per_token"}
  Json nodes;        // of a gathered sweep, a list of where and how much was measured; else null
  Json provenance;   // compiler, files of the model, kernel, cgroup, environment, topology

  // The findings.
  std::vector<Candidate> candidates;  // in order of id; [0] is the baseline
  std::vector<double> floors;         // per objective of the definition, a fraction
  std::vector<Noise> noise;           // per objective of the definition
  std::vector<Verdict> verdicts;      // per objective of the definition
  MeasuredLoads loads;
  int batch_prompts = 0;   // of the offline batch if reduced; 0: as in the definition
  int rounds_done = 0;     // whole rounds, confirmation not counted
  int rounds_planned = 0;  // as many as fit the budget
  int confirmation_rounds = 0;
  int calibration_rounds = 0;  // the baseline against itself, before the rounds
  double elapsed_s = 0;        // including the time before each --resume
  bool finished = false;       // false: interrupted, or still running
  std::vector<std::string> warnings;

  const Candidate* Find(int id) const;
  const Verdict* FindVerdict(std::string_view objective) const;
  const Verdict* FindVerdict(Objective objective) const { return FindVerdict(Name(objective)); }
  double FloorOf(Objective objective) const;  // of its verdict; 0 without one
  Objective ObjectiveOf(const Verdict& verdict) const;
};

}  // namespace pinion::harness
