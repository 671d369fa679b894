#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/profile/profile.h"
#include "harness/report/results.h"

// From a verdict to something that can be started.

namespace pinion::harness {

// The profile that an objective's verdict recommends; nullopt where there is no verdict on data.
// `folder` is kept as the place of the evidence. Error: options that this version does not know.
Result<std::optional<Profile>> ProfileOf(const Results& results, Objective objective,
                                         const std::string& folder);

// "profiles/throughput.json", relative to the sweep's folder.
std::string ProfileFile(const std::string& objective);

// The same under the sweep's folder, however that was written: "out/x/" and "out/x" are one.
std::string ProfilePath(const std::string& folder, const std::string& objective);

// The program as the person called it ("build/pinion sweep ..." -> "build/pinion"), so that the
// commands in the report can be pasted.
std::string ProgramOf(const std::string& command_line);

// How to start what `verdict` recommends. Empty where there is no profile to start.
struct LaunchCommands {
  std::string pinion;      // pinion launch FOLDER/profiles/throughput.json
  std::string other;       // of another engine that was measured: its own command, the rest empty
  std::string vllm;        // the nearest with vLLM; may have several lines
  std::string front;       // of several replicas: an HAProxy configuration before them
  std::string vllm_lacks;  // "isa=avx2": what vLLM has no setting for
};
LaunchCommands LaunchCommandsOf(const Results& results, const Verdict& verdict,
                                const std::string& folder);

// Verdicts that recommend the same configuration, which one command starts; the command is that of
// the first. Without those that have nothing to start.
struct LaunchGroup {
  LaunchCommands commands;
  std::vector<const Verdict*> verdicts;

  std::string objectives() const;  // "throughput, latency and balanced"
};
std::vector<LaunchGroup> LaunchGroups(const Results& results, const std::string& folder);

}  // namespace pinion::harness
