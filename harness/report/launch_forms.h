#pragma once

#include <string>
#include <vector>

#include "harness/results/results.h"

// Ways to start a sweep's recommendation, as text to paste.

namespace pinion::harness {

struct LaunchForm {
  std::string title;  // "Pinion", "vLLM", "llama.cpp", "systemd unit", "Container", "Slurm job"
  std::string text;   // a command, or a whole file
  std::string note;   // to read before pasting it; may be empty
};

// Empty if there is no profile to start. `folder` holds the profiles.
std::vector<LaunchForm> LaunchForms(const Results& results, const Verdict& verdict,
                                    const std::string& folder);

}  // namespace pinion::harness
