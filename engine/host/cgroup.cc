#include "engine/host/cgroup.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

std::string Slurp(const std::string& path) {
  const auto text = ReadFile(path, 1 << 24);
  return text ? std::string(Trim(*text)) : "";
}

// A whole number >= 0; nullopt for "max", -1, and anything else that means "no limit".
std::optional<uint64_t> Number(std::string_view text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stop != end || text.empty()) return std::nullopt;
  return value;
}

// mountinfo writes a space as \040.
std::string Unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, code, 8).ptr ==
            text.data() + i + 4) {
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

struct Mount {
  std::string root;   // the group that is visible at `point`
  std::string point;  // as this process sees it
  bool v2 = false;
  std::vector<std::string> controllers;  // v1 only
};

// One line: "31 23 0:28 /root /point options... - type source superoptions".
std::optional<Mount> ParseMount(const std::string& line) {
  const size_t dash = line.find(" - ");
  if (dash == std::string::npos) return std::nullopt;
  std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
  std::string id, parent, device, root, point, type, source, options;
  left >> id >> parent >> device >> root >> point;
  right >> type >> source >> options;
  if (type != "cgroup" && type != "cgroup2") return std::nullopt;
  return Mount{Unescape(root), Unescape(point), type == "cgroup2", Split(options, ',')};
}

// This process's group per hierarchy, from /proc/self/cgroup: "4:memory:/a/b" or, v2, "0::/a/b".
struct Membership {
  std::vector<std::string> controllers;  // {""} for v2
  std::string group;
};

std::vector<Membership> ReadMemberships(const std::string& root) {
  std::vector<Membership> all;
  for (const std::string& line : Split(Slurp(root + "/proc/self/cgroup"), '\n')) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line[second + 1] != '/') continue;
    all.push_back(
        {Split(line.substr(first + 1, second - first - 1), ','), line.substr(second + 1)});
  }
  return all;
}

bool Contains(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The folders of the process's group and of every group above it, up to the mount point. A group
// outside the mount (a container that sees only its own) starts at the mount point.
std::vector<std::string> Chain(const Mount& mount, const std::string& group) {
  std::string below = group;
  if (mount.root != "/") {
    const bool inside = group.rfind(mount.root, 0) == 0 &&
                        (group.size() == mount.root.size() || group[mount.root.size()] == '/');
    below = inside ? group.substr(mount.root.size()) : "";
  }
  if (below.rfind("/..", 0) == 0) below.clear();  // above what our cgroup namespace shows
  while (!below.empty() && below.back() == '/') below.pop_back();
  std::vector<std::string> folders;
  for (; !below.empty(); below.resize(below.rfind('/'))) folders.push_back(mount.point + below);
  folders.push_back(mount.point);
  return folders;
}

class Reader {
 public:
  explicit Reader(std::string root) : root_(std::move(root)) {}

  // Applies one controller ("cpu", "cpuset", "memory") of one hierarchy.
  void Apply(std::string_view controller, const Mount& mount, const std::string& group) {
    const std::vector<std::string> chain = Chain(mount, group);
    if (controller == "cpuset") return ReadCpuset(chain, mount.v2);
    for (const std::string& folder : chain) {
      if (controller == "cpu") mount.v2 ? ReadQuotaV2(folder) : ReadQuotaV1(folder);
      if (controller == "memory") mount.v2 ? ReadMemoryV2(folder) : ReadMemoryV1(folder);
    }
  }
  CgroupLimits limits;

 private:
  std::string Read(const std::string& path) const { return Slurp(root_ + path); }

  void TightenQuota(std::optional<uint64_t> quota, std::optional<uint64_t> period,
                    const std::string& file) {
    if (!quota || !period || *quota == 0 || *period == 0) return;
    const double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
    if (limits.cpu_quota && *limits.cpu_quota <= cpus) return;
    limits.cpu_quota = cpus;
    limits.cpu_quota_file = file;
  }

  void ReadQuotaV2(const std::string& folder) {
    const std::vector<std::string> words = Split(Read(folder + "/cpu.max"), ' ');
    if (words.size() == 2) TightenQuota(Number(words[0]), Number(words[1]), folder + "/cpu.max");
  }

  void ReadQuotaV1(const std::string& folder) {
    const std::string file = folder + "/cpu.cfs_quota_us";
    TightenQuota(Number(Read(file)), Number(Read(folder + "/cpu.cfs_period_us")), file);
  }

  // The effective set of the innermost group that has one already includes those above.
  void ReadCpuset(const std::vector<std::string>& chain, bool v2) {
    for (const std::string& folder : chain) {
      for (const char* name :
           {"/cpuset.cpus.effective", "/cpuset.effective_cpus", "/cpuset.cpus"}) {
        if (v2 != (std::string_view(name) == "/cpuset.cpus.effective")) continue;
        auto cpus = ParseCpuList(Read(folder + name));
        if (!cpus) continue;  // absent, or empty as in a v2 group without the controller
        limits.cpus = std::move(*cpus);
        limits.cpus_file = folder + name;
        return;
      }
    }
  }

  void TightenMemory(std::optional<uint64_t> limit, uint64_t used, uint64_t page_cache,
                     const std::string& file) {
    if (!limit) return;
    if (!limits.memory_limit_bytes || *limit < *limits.memory_limit_bytes) {
      limits.memory_limit_bytes = limit;
      limits.memory_limit_file = file;
    }
    const uint64_t held = used - std::min(used, page_cache);
    const uint64_t headroom = *limit - std::min(*limit, held);
    limits.memory_headroom_bytes =
        std::min(limits.memory_headroom_bytes.value_or(headroom), headroom);
  }

  // Sum of the named counters of a memory.stat file.
  uint64_t Statistics(const std::string& path, const std::vector<std::string>& names) const {
    uint64_t sum = 0;
    for (const std::string& line : Split(Read(path), '\n')) {
      const std::vector<std::string> words = Split(line, ' ');
      if (words.size() == 2 && Contains(names, words[0])) sum += Number(words[1]).value_or(0);
    }
    return sum;
  }

  void ReadMemoryV2(const std::string& folder) {
    const uint64_t used = Number(Read(folder + "/memory.current")).value_or(0);
    const uint64_t cache =
        Statistics(folder + "/memory.stat", {"inactive_file", "active_file", "slab_reclaimable"});
    // Above memory.high the kernel throttles a process almost to a halt: treat it as a limit.
    for (const char* name : {"/memory.max", "/memory.high"})
      TightenMemory(Number(Read(folder + name)), used, cache, folder + name);
  }

  void ReadMemoryV1(const std::string& folder) {
    const std::string file = folder + "/memory.limit_in_bytes";
    const std::optional<uint64_t> limit = Number(Read(file));
    if (!limit || *limit >= uint64_t{1} << 62) return;  // v1 writes "none" as 2^63 - 4096
    TightenMemory(limit, Number(Read(folder + "/memory.usage_in_bytes")).value_or(0),
                  Statistics(folder + "/memory.stat", {"total_inactive_file", "total_active_file"}),
                  file);
  }

  std::string root_;
};

}  // namespace

CgroupLimits ReadCgroups(const std::string& root) {
  const std::string base = root == "/" ? "" : root;
  const std::vector<Membership> memberships = ReadMemberships(base);
  Reader reader(base);
  for (const std::string& line : Split(Slurp(base + "/proc/self/mountinfo"), '\n')) {
    const auto mount = ParseMount(line);
    if (!mount) continue;
    for (const Membership& membership : memberships) {
      for (const char* controller : {"cpu", "cpuset", "memory"}) {
        const bool here = mount->v2 ? Contains(membership.controllers, "")
                                    : Contains(membership.controllers, controller) &&
                                          Contains(mount->controllers, controller);
        if (here) reader.Apply(controller, *mount, membership.group);
      }
    }
  }
  return std::move(reader.limits);
}

}  // namespace pinion
