#include "engine/host/caches.h"

#include <algorithm>
#include <optional>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

std::optional<Cache> ReadCache(const std::string& folder) {
  const auto text = [&](const char* name) {
    const auto content = ReadFile(folder + name);
    return content ? std::string(Trim(*content)) : std::string();
  };
  const std::string type = text("type");
  if (type != "Data" && type != "Unified") return std::nullopt;
  const auto level = ParseInt(text("level"), "cache level");
  const auto bytes = ParseBytes(text("size"), 1, "cache size");  // "48K"
  auto cpus = ParseCpuList(text("shared_cpu_list"));
  if (!level || !bytes || *bytes == 0 || !cpus) return std::nullopt;
  std::sort(cpus->begin(), cpus->end());
  return Cache{static_cast<int>(*level), *bytes, std::move(*cpus)};
}

}  // namespace

std::vector<Cache> CachesOf(int cpu, const std::string& root) {
  std::vector<Cache> caches;
  for (int index = 0;; ++index) {
    const std::string folder =
        StrCat(root, "/sys/devices/system/cpu/cpu", cpu, "/cache/index", index, "/");
    if (!ReadFile(folder + "type")) break;
    if (auto cache = ReadCache(folder)) caches.push_back(std::move(*cache));
  }
  std::stable_sort(caches.begin(), caches.end(),
                   [](const Cache& a, const Cache& b) { return a.level < b.level; });
  return caches;
}

}  // namespace pinion
