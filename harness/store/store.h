#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/settings.h"
#include "harness/load/request_record.h"
#include "harness/space/settings.h"
#include "harness/stats/load_level.h"
#include "harness/store/trial_info.h"

namespace pinion::harness {

// One request of a trial's load, warm-ups excepted.
struct RequestRow {
  std::string load;  // "batch", "clients", "rate" or "search"
  LoadLevel level;   // neither: the batch
  RequestRecord record;

  bool operator==(const RequestRow&) const = default;
};

// The purpose of a trial. Rounds count from 1 in each phase.
enum class Phase {
  kRace,          // choosing among candidates
  kConfirmation,  // the chosen ones against the baseline, on fresh prompts
  kCalibration,   // the baseline against itself, before anything else
};
const char* Name(Phase phase);  // "race", "confirmation", "calibration"

// A trial's place in the experiment.
struct Slot {
  int candidate = 0;
  int copy = 0;  // 1: the baseline's second trial in its round
  Phase phase = Phase::kRace;
  int round = 1;
  int attempt = 0;  // 1: the repetition of a disturbed trial at the end of its round
  auto operator<=>(const Slot&) const = default;
};

// A trial: one candidate measured once, or the failed attempt.
struct TrialRow : Slot {
  int position = 0;  // place within its round
  bool ok = false;
  std::string reason;  // why it failed
  std::string log_path, log_tail;
  std::string started_at;            // ISO 8601, UTC
  double seconds = 0;                // of the whole child process
  std::vector<std::string> suspect;  // disturbances: "steal 4.1 %"
  TrialInfo info;
  std::vector<MetricValue> samples;
  std::vector<RequestRow> requests;  // to store; Trials() leaves them out
};

// Of the trials that succeeded, which all have the same: whether they ran an offline batch, and its
// prompts if they were reduced (else 0: as many as the workload has).
bool RanBatch(const std::vector<TrialRow>& trials);
int ReducedBatch(const std::vector<TrialRow>& trials);

// One candidate of the sweep; never changed after it is stored.
struct CandidateRow {
  int id = 0;
  std::string label;
  std::string engine;             // its name in the definition
  std::vector<Setting> settings;  // unlike the base, and the engine's own ones
  Configuration configuration;    // all of it but the engine's own
  bool is_baseline = false;
  int cores = 0;  // threads of all ranks in its plan
  std::string infeasible;
  std::vector<std::string> same_as;
};

// A sweep's storage: one SQLite file in WAL mode, so that a killed sweep keeps every finished trial
// and a report can be written while it runs. Tables:
//   meta(key, value)             properties of the sweep, JSON by name
//   candidate, trial             as the structs above
//   requests(trial, load, ..., token_us)
//                                one row per request; token_us as PackTimes in harness/load
//   samples(trial, machine, model, configuration, seed, round, ..., metric, concurrency, rate,
//   value)
//                                one row per number, readable on its own by any SQLite client
// Errors name the file: missing, locked by another process for 5 s, disk full, not a database,
// another version's layout. One thread at a time.
class Store {
 public:
  static Result<std::unique_ptr<Store>> Open(const std::string& path);

  // A new store that `fill` writes. The file is there once it has all of that: a process that is
  // killed before leaves none. Errors: fill's, after which there is no file either; it exists
  // already (kUsage).
  static Result<std::unique_ptr<Store>> Create(const std::string& path,
                                               const std::function<Status(Store&)>& fill = {});
  virtual ~Store() = default;

  // A property of the sweep as a whole, by name.
  virtual Status SetMeta(const std::string& key, const Json& value) = 0;
  virtual Result<std::optional<Json>> Meta(const std::string& key) = 0;

  // Stores all or none.
  virtual Status PutCandidates(const std::vector<CandidateRow>& candidates) = 0;
  // In the order of their ids, from 0. Errors: one is missing, such as the baseline, which every
  // sweep has, or has no settings (kCorrupt), or has one that this version does not know
  // (kUnsupported).
  virtual Result<std::vector<CandidateRow>> Candidates() = 0;

  // The keys of samples, besides their trial.
  struct Keys {
    std::string machine, model;  // short hash of the fingerprint; MODEL as given
    std::string configuration;   // {"engine", settings by key}, one line of JSON
    uint64_t seed = 0;           // of the round
  };
  // Stores a trial with all its samples, or nothing. A second trial of the same slot replaces the
  // first.
  virtual Status PutTrial(const TrialRow& trial, const Keys& keys) = 0;
  // With which a trial was stored; empty if it has no samples.
  virtual Result<Keys> KeysOf(const Slot& slot) = 0;
  virtual Result<std::vector<TrialRow>> Trials() = 0;  // in the order in which they were stored
  // Of one trial, in the order of sending within each load; empty if it is not stored.
  virtual Result<std::vector<RequestRow>> Requests(const Slot& slot) = 0;
};

}  // namespace pinion::harness
