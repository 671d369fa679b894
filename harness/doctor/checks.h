#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// Where the doctor looks: tests lay out proc/ and sys/ below a folder of their own.
struct DoctorTarget {
  std::string root = "/";
  std::map<std::string, std::string> environment;  // of this process
  std::vector<std::string> library_folders;        // where allocators are looked for
  int allowed_cpus = 1;                            // of the budget
};
// This process on this machine, whose file systems lie below `root`: a folder where the host's are
// mounted into a container.
DoctorTarget LocalTarget(int allowed_cpus, const std::string& root = "/");

// A file of /proc or /sys and what to write there.
struct Change {
  std::string path;  // as the kernel names it, without the target's root
  std::string before, after;
};

// "always [madvise] never" -> "madvise"; another text as it is.
std::string ChosenSetting(const std::string& text);

// One thing that decides how fast, or how steadily, a CPU computes.
struct Check {
  enum class State { kOk, kWarn, kNotAvailable };
  std::string name;  // "governor"
  State state = State::kOk;
  std::string found;            // "performance on 64 CPUs"
  std::string reason;           // why that is good, bad, or cannot be seen
  std::string fix;              // a command for a shell; empty: nothing to do, or none
  std::vector<Change> changes;  // what --apply writes; empty: nothing that it may change
};
const char* Name(Check::State state);  // "ok", "warn", "not available"

// All of them, in the order in which they are shown: governor, turbo, smt, numa_balancing,
// huge_pages, allocator, openmp, quota, cpuset, mitigations, load, swap. Reads only.
std::vector<Check> Examine(const DoctorTarget& target);

// {"checks":[{"name","state","found","reason","fix","applies":[{"path","before","after"}]}],
//  "warnings":n}
Json ToJson(const std::vector<Check>& checks);
std::string Render(const std::vector<Check>& checks, bool colour);

}  // namespace pinion::harness
