#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/host/binding.h"
#include "harness/load/slo_search.h"
#include "harness/stats/load_level.h"
#include "harness/stats/quantiles.h"

namespace pinion::harness {

// One number that a trial measured.
struct MetricValue {
  std::string metric;  // see Metrics() in harness/stats/metrics.h
  LoadLevel level;
  double value = 0;
};
Json ToJson(const std::vector<MetricValue>& samples);
Result<std::vector<MetricValue>> ReadSamples(const Json& list);

// Of several waves, in the order in which they first have them. A sample that only some waves have,
// such as a quantile that needs many requests, is the mean of those.
std::vector<MetricValue> MeansOf(const std::vector<std::vector<MetricValue>>& waves);

// Entries of TrialInfo::cut.
inline constexpr char kBatchCut[] = "offline batch cut";
inline constexpr char kSearchCut[] = "search of the SLO's load cut";
inline constexpr char kSearchLeftOut[] = "search of the SLO's load left out";

// The search of a trial for its SLO's load.
struct SearchedLevels {
  std::string unit;  // of its loads: "clients", "requests/s"
  SloLevels levels;
};
// Adds the levels of another search of the same kind.
void Pool(const SearchedLevels& found, SearchedLevels& into);

// The part of a loop's load that was measured (SteadyWindow in harness/load).
struct LoadWindow {
  LoadLevel level;
  std::optional<double> start_s, end_s;  // since the loop's start; unset: too few requests for a
                                         // steady part, so that all of the loop counts
  int requests = 0;                      // that count
  std::optional<bool> by_time;  // the loop ended by its time, not after all of its requests
};

// CPUs of a trial's load generator, and how often it was late.
struct GeneratorPlace {
  std::vector<int> cpus;
  double late_share = 0;
  bool is_apart = false;  // neither engine nor front end used these CPUs
};

// Facts of a trial besides its samples, in results.db an object with a key for each member that is
// set.
struct TrialInfo {
  std::string isa, dtype;  // as the engine reports them
  int threads = 0, ranks = 0;
  Plan plan;                     // of all engines behind the server; without ranks: unknown
  std::string command;           // how a user starts the server; empty: `pinion launch` does
  std::vector<std::string> cut;  // parts measured on less than the whole load
  std::vector<Distribution> quantiles;
  std::optional<SearchedLevels> slo;
  std::string no_ceilings_because;
  int batch_prompts = 0;                // of the offline batch if reduced; 0: as in the workload
  std::optional<double> batch_over_s;   // by which the batch exceeded its share of the trial
  std::optional<double> once_s;         // spent on the ceilings, which no later trial needs again
  std::optional<double> out_of_time_s;  // of a failed trial: the limit that was too short
  // The samples of each wave of load, in turns with those of the other side (RunPair), which has
  // as many; empty if the trial was measured alone.
  std::vector<std::vector<MetricValue>> waves;
  std::vector<int> wave_requests;   // how many of the trial's requests are of each wave
  std::optional<double> warm_up_s;  // before and between the loads
  int warm_up_batches = 0;
  std::vector<LoadWindow> windows;  // of the loops
  std::optional<GeneratorPlace> generator;
  std::vector<std::string> ignored_settings;  // "isa=avx2": that the engine has no counterpart of
  Json rest = Json::MakeObject();             // for people alone: stages, counters, ...

  bool has_cut_batch() const { return Has(kBatchCut); }
  // Whether the search for the SLO's load ended too early to tell it.
  bool has_cut_search() const { return Has(kSearchCut) || Has(kSearchLeftOut); }

 private:
  bool Has(const char* what) const { return std::find(cut.begin(), cut.end(), what) != cut.end(); }
};

Json ToJson(const TrialInfo& info);
// A member of another type than its own is left unset: it may come from another version.
TrialInfo ReadTrialInfo(const Json& object);

}  // namespace pinion::harness
