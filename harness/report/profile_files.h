#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/profile/profile.h"
#include "harness/results/results.h"

// The files that are made from a recommended profile (harness/artifacts), in a folder beside it:
// profiles/throughput/ for profiles/throughput.json.

namespace pinion::harness {

// A line of a report's list.
struct ProfileFileLine {
  std::string path;  // relative to the sweep's folder; empty if the file cannot be made
  std::string name;  // of the file, or its kind
  std::string text;  // its purpose, or why there is none
};
// Empty if the verdict has no profile.
std::vector<ProfileFileLine> ProfileFileLines(const Results& results, const Verdict& verdict,
                                              const std::string& folder);

// Writes the files of a profile, and removes those of an earlier state that cannot be made now;
// `profile` null: all of them. Other files in their folder stay. Errors: of the file system.
Status WriteProfileFiles(const Profile* profile, const std::string& objective,
                         const std::string& folder);

}  // namespace pinion::harness
