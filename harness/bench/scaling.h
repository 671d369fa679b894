#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/host/binding.h"

// How a model's speed grows with threads and ranks: `pinion bench --scaling`.

namespace pinion::harness {

// One measurement of a scaling: a bench of its own process, on these CPUs.
struct ScalingRun {
  int ranks = 1, threads = 1;  // threads of all ranks
  std::string threads_bind;    // a CPU list for each rank
};

// One rank on the first 1, 2, 4, ... of the plan's CPUs, in the plan's order and up to all of them;
// then all of them under each plan of `splits`, which have more ranks. Error (kUsage): a plan
// that pins no thread.
Result<std::vector<ScalingRun>> ScalingRuns(const Plan& plan, const std::vector<Plan>& splits);

// Figures of a run.
struct ScalingRow {
  ScalingRun run = {};
  std::string error = {};  // why there are no figures; then all below are unset
  std::optional<double> prefill_tokens_per_s = {}, decode_steps_per_s = {};
  // Of the limit of the run's own threads.
  std::optional<double> prefill_of_limit = {}, decode_of_limit = {};
  std::vector<double> wait_shares = {};  // by rank, of the steps' time
};

// From the JSON that `pinion bench` printed for the run. Error (kIo): it is not output of bench.
Result<ScalingRow> ReadScalingRow(const ScalingRun& run, const Json& bench);

// [{"ranks","threads","threads_bind","prefill_tokens_per_s","decode_steps_per_s",
//   "prefill_of_limit","decode_of_limit","wait_shares":[]} or {...,"error"}]; unset: null.
Json ToJson(const std::vector<ScalingRow>& rows);

// The same as a table, with each rate's ratio to that of the first row.
std::string Render(const std::vector<ScalingRow>& rows);

}  // namespace pinion::harness
