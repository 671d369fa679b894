#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/run/options.h"
#include "harness/space/definition.h"
#include "harness/space/expand.h"
#include "harness/store/store.h"

namespace pinion::harness {

// What a sweep is, as its store keeps it under "meta". Written once, but for budget and rounds.
struct SweepMeta {
  std::string model;
  Definition definition;
  EngineOptions base;  // the baseline's
  Json machine;        // MachineFingerprint
  Json budget;         // {"cpus":[],"cpu_quota","memory_total_bytes","reasons":[]}
  Json model_facts;    // {"architecture","parameters","weight_bytes","kv_bytes_per_token"}
  Json predictions;    // PredictAll, made before anything ran; null without a probe
  Json provenance;     // Provenance; null in what was described without being run
  // Objectives that were asked for and cannot be had here: "energy: not available, because ...".
  std::vector<std::string> unavailable;
  std::string command_line, version, commit, started_at;
};

// How far it is; written as it goes on.
struct SweepProgress {
  std::string updated_at;
  int rounds_planned = 0;
  bool finished = false;
};

Status WriteMeta(Store& store, const SweepMeta& meta);
Result<SweepMeta> ReadMeta(Store& store);
Status WriteProgress(Store& store, const SweepProgress& progress);
Result<SweepProgress> ReadProgress(Store& store);

// Seconds of a trial, kept from the start on: a resume with another budget must not change what a
// trial is.
Status WriteTrialLimit(Store& store, double limit_s);
Result<std::optional<double>> ReadTrialLimit(Store& store);

// What --resume must not change: kUsage error naming the first difference. Budget and rounds may
// grow or shrink, since they invalidate no sample.
Status CheckSame(const SweepMeta& stored, const SweepMeta& asked);

CandidateRow RowOf(const Point& point, int id);
// A row's settings, which are kept as pairs.
std::vector<Setting> SettingsFrom(const Json& pairs);

std::string NowIso8601();
// The commit that this binary was built from.
std::string Commit();

}  // namespace pinion::harness
