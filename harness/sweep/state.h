#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/run/options.h"
#include "harness/space/definition.h"
#include "harness/space/expand.h"
#include "harness/store/store.h"

namespace pinion::harness {

// The description of a sweep, stored under "meta". Written once, except for budget and rounds.
struct SweepMeta {
  std::string model;
  Definition definition;
  EngineOptions base;  // the baseline's
  Json machine;        // MachineFingerprint
  Json budget;         // {"cpus":[],"cpu_quota","memory_total_bytes","reasons":[]}
  Json model_facts;    // {"architecture","parameters","weight_bytes","kv_bytes_per_token"}
  Json predictions;    // PredictAll, made before anything ran; null without a probe
  Json provenance;     // Provenance; null if the sweep is only planned
  // Requested objectives that cannot be measured here: "energy: not available, because ...".
  std::vector<std::string> unavailable;
  std::string command_line, version, commit, started_at;
  // Of a gathered sweep (Gather), for each node: its name, its own definition, and the rounds that
  // are its own. Else null.
  Json nodes;
};

// The progress of a sweep; updated as it runs.
struct SweepProgress {
  std::string updated_at;
  int rounds_planned = 0;
  bool finished = false;
};

Status WriteMeta(Store& store, const SweepMeta& meta);
Result<SweepMeta> ReadMeta(Store& store);
Status WriteProgress(Store& store, const SweepProgress& progress);
Result<SweepProgress> ReadProgress(Store& store);

// Stores the time limit of a trial, chosen once: a resume with another budget must not change
// trials.
Status WriteTrialLimit(Store& store, double limit_s);
Result<std::optional<double>> ReadTrialLimit(Store& store);

// A value within objects, such as provenance's engine's binary_hash; null if it is not there.
Json ValueAt(const Json& object, std::initializer_list<const char*> path);

// The first key of two objects whose value differs.
struct KeyDifference {
  std::string what;
  Json first, other;
};
std::optional<KeyDifference> FirstDifference(const Json& first, const Json& other);

// Checks the facts that --resume must not change: model, definition, machine, CPUs and their quota,
// the binary, the environment. The kUsage error names the first difference. Budget and rounds may
// change, since they invalidate no sample.
Status CheckSame(const SweepMeta& stored, const SweepMeta& asked);

CandidateRow RowOf(const Point& point, int id);

std::string NowIso8601();
// The commit that this binary was built from.
std::string Commit();

}  // namespace pinion::harness
