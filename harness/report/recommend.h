#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/profile/profile.h"
#include "harness/results/results.h"

// Turns a verdict into profiles and commands that start the recommended configuration.

namespace pinion::harness {

// A candidate's engine, with the candidate's own settings of it.
EngineChoice EngineOf(const Results& results, const Candidate& candidate);

// The profile that an objective's verdict recommends; nullopt without data for a verdict, or for an
// engine that no profile can start.
// The profile cites `folder` as its evidence. Error: the verdict names no candidate of the sweep.
Result<std::optional<Profile>> ProfileOf(const Results& results, Objective objective,
                                         const std::string& folder);

// "profiles/throughput.json", relative to the sweep's folder.
std::string ProfileFile(const std::string& objective);

// The same under the sweep's folder, with or without a slash at its end.
std::string ProfilePath(const std::string& folder, const std::string& objective);

// The program that a candidate of Pinion's was measured with: its engine's build or, as the user
// called it ("build/pinion sweep ..." -> "build/pinion"), the sweep's own, so that the commands in
// the report can be pasted.
std::string ProgramOf(const Results& results, const Candidate& candidate);

// Commands that start the configuration that `verdict` recommends; empty without a profile to
// start.
struct LaunchCommands {
  std::string pinion;  // pinion launch FOLDER/profiles/throughput.json
  std::string other;   // if another engine was measured: its own command, and the rest is empty
  std::string vllm;    // the closest equivalent with vLLM; may have several lines
  std::vector<std::string> vllm_lacks;  // "isa=avx2": settings without a counterpart in vLLM
  std::string llama_cpp;                // the same with llama-server
  std::vector<std::string> llama_cpp_lacks;
};
LaunchCommands LaunchCommandsOf(const Results& results, const Verdict& verdict,
                                const std::string& folder);

// "vLLM has no setting for isa=avx2, head_dtype=int8."; empty if it lacks none.
std::string LacksText(const std::string& engine, const std::vector<std::string>& settings);

// Verdicts that recommend the same configuration, so that one command starts it: that of
// the first. Verdicts without a command are left out.
struct LaunchGroup {
  LaunchCommands commands;
  std::vector<const Verdict*> verdicts;

  std::string objectives() const;  // "throughput, latency and balanced"
};
std::vector<LaunchGroup> LaunchGroups(const Results& results, const std::string& folder);

}  // namespace pinion::harness
