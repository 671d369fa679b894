#include "harness/engines/process_memory.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "engine/base/file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// The bytes of a line "Key:   12 kB" of a file of /proc; 0 if there is none.
uint64_t BytesIn(pid_t process, const char* file, const std::string& key) {
  std::istringstream words(ReadFile(StrCat("/proc/", process, "/", file), 1 << 16).value_or(""));
  uint64_t kib = 0;
  for (std::string word; words >> word;)
    if (word == key && words >> kib) return kib * 1024;
  return 0;
}

// Bytes of this process's shared memory that others count: each that maps a page counts an equal
// part of it. Kernels before 5.4 do not tell.
uint64_t CountedByOthers(pid_t process) {
  const uint64_t part = BytesIn(process, "smaps_rollup", "Pss_Shmem:");
  const uint64_t whole = BytesIn(process, "status", "RssShmem:");
  return part == 0 ? 0 : whole - std::min(whole, part);
}

}  // namespace

uint64_t PeakMemoryBytes(const std::vector<pid_t>& processes) {
  uint64_t bytes = 0;
  for (const pid_t process : processes) {
    const uint64_t peak = PeakRssBytes(process);
    bytes += peak - std::min(peak, CountedByOthers(process));
  }
  return bytes;
}

}  // namespace pinion::harness
