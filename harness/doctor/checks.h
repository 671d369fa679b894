#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/base/json.h"

namespace pinion::harness {

// The system that the doctor examines: tests lay out proc/ and sys/ below a folder of their own.
struct DoctorTarget {
  std::string root = "/";
  std::map<std::string, std::string> environment;  // of this process
  std::vector<std::string> library_folders;        // searched for allocators
  int allowed_cpus = 1;                            // of the budget
};
// This process on this machine, whose file systems lie below `root`: in a container, a folder with
// the host's file systems.
DoctorTarget LocalTarget(int allowed_cpus, const std::string& root = "/");

// A file of /proc or /sys and the text to write there.
struct Change {
  std::string path;  // as the kernel names it, without the target's root
  std::string before, after;
};

// "always [madvise] never" -> "madvise"; other text stays unchanged.
std::string ChosenSetting(const std::string& text);

// One property of the system that affects how fast, or how steadily, a CPU computes.
struct Check {
  enum class State { kOk, kWarn, kNotAvailable };
  std::string name;  // "governor"
  State state = State::kOk;
  std::string found;            // "performance on 64 CPUs"
  std::string reason;           // why that is good or bad, or why it cannot be determined
  std::string fix;              // a shell command; may be empty
  std::vector<Change> changes;  // written by --apply; may be empty
};
const char* Name(Check::State state);  // "ok", "warn", "not available"

// All checks, in display order: governor, turbo, smt, numa_balancing, zone_reclaim, huge_pages,
// reserved_pages, allocator, openmp, quota, cpuset, mitigations, load, swap. Reads only.
std::vector<Check> Examine(const DoctorTarget& target);

// {"checks":[{"name","state","found","reason","fix","applies":[{"path","before","after"}]}],
//  "warnings":n}
Json ToJson(const std::vector<Check>& checks);
std::string Render(const std::vector<Check>& checks, bool colour);

}  // namespace pinion::harness
