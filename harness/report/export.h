#pragma once

#include <optional>
#include <string>

#include "engine/base/json.h"
#include "harness/profile/profile.h"
#include "harness/report/results.h"

// The machine-readable outputs of a sweep.

namespace pinion::harness {

// results.json: everything in `results`, every sample, and the launch commands of `folder`.
Json ResultsJson(const Results& results, const std::string& folder);

// results.csv: one row per candidate, metric and concurrency with median, interval and settings;
// one row without a metric for a candidate that was never measured. RFC 4180.
std::string ResultsCsv(const Results& results);

// The profile that an objective's verdict recommends; nullopt where there is no verdict on data.
// `folder` is kept as the place of the evidence. Error: options that this version does not know.
Result<std::optional<Profile>> ProfileOf(const Results& results, Objective objective,
                                         const std::string& folder);

// "profiles/throughput.json", relative to the sweep's folder.
std::string ProfileFile(const std::string& objective);

// How to start what `verdict` recommends. Empty where there is no profile to start.
struct LaunchCommands {
  std::string pinion;      // pinion launch FOLDER/profiles/throughput.json
  std::string vllm;        // the nearest with vLLM; may have two lines
  std::string vllm_lacks;  // "isa=avx2": what vLLM has no setting for
};
LaunchCommands LaunchCommandsOf(const Results& results, const Verdict& verdict,
                                const std::string& folder);

}  // namespace pinion::harness
