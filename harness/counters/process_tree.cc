#include "harness/counters/process_tree.h"

#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

struct Entry {
  pid_t parent = 0, group = 0;
  uint64_t ticks = 0, start = 0;
};

// "1 (a name) S 0 ...": the name may contain anything, so parse from the last bracket.
std::optional<Entry> ParseEntry(const std::string& stat) {
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream words(stat.substr(end + 1));
  std::string skipped;
  Entry entry;
  words >> skipped >> entry.parent >> entry.group;
  for (int field = 6; field < 14; ++field) words >> skipped;
  uint64_t ticks = 0;  // utime, stime, cutime, cstime
  for (int field = 14; field < 18 && words >> ticks; ++field) entry.ticks += ticks;
  for (int field = 18; field < 22; ++field) words >> skipped;
  words >> entry.start;
  return entry;
}

std::map<pid_t, Entry> AllProcesses() {
  std::map<pid_t, Entry> all;
  std::error_code error;
  for (const auto& folder : std::filesystem::directory_iterator("/proc", error)) {
    const auto id = ParseInt(folder.path().filename().string(), "process");
    if (!id) continue;
    if (const auto entry =
            ParseEntry(ReadFile(folder.path().string() + "/stat", 4096).value_or("")))
      all[static_cast<pid_t>(*id)] = *entry;
  }
  return all;
}

}  // namespace

uint64_t StartTicks(pid_t process) {
  const auto entry = ParseEntry(ReadFile(StrCat("/proc/", process, "/stat"), 4096).value_or(""));
  return entry ? entry->start : 0;
}

std::vector<TreeProcess> ProcessTree(pid_t root) {
  const std::map<pid_t, Entry> all = AllProcesses();
  std::vector<TreeProcess> tree;
  for (const auto& [id, entry] : all) {
    auto at = all.find(id);
    while (at != all.end() && at->first != root && at->second.group != root)
      at = all.find(at->second.parent);
    if (at != all.end()) tree.push_back({id, entry.ticks});
  }
  return tree;
}

}  // namespace pinion::harness
