// Memory traffic by the kernel's resctrl: what its default group, which is every process that
// no one has put elsewhere, moved past each last-level cache.

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/counters/sources.h"

namespace pinion::harness {
namespace {

constexpr char kGroup[] = "sys/fs/resctrl/mon_data";

class Resctrl final : public CounterSource {
 public:
  explicit Resctrl(std::string root) : root_(std::move(root)) {}
  const char* name() const override { return "resctrl"; }

  Status Start() override {
    PINION_ASSIGN(before_, Total());
    return {};
  }

  Result<std::vector<CounterValue>> Stop() override {
    PINION_ASSIGN(const uint64_t after, Total());
    return std::vector<CounterValue>{
        {"memory_bytes", static_cast<double>(after) - static_cast<double>(before_)}};
  }

 private:
  // Of all domains, mon_data/mon_L3_NN/mbm_total_bytes.
  Result<uint64_t> Total() const {
    uint64_t total = 0;
    size_t domains = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(root_ + kGroup, ignored)) {
      const std::string file = "mbm_total_bytes", path = entry.path().string() + "/" + file;
      const auto text = ReadFile(path, 4096);
      if (!text) continue;
      const auto bytes = ParseInt(Trim(*text), file);
      if (!bytes)  // the kernel writes "Unavailable" or "Error" there
        return Fail(ErrorCode::kUnsupported,
                    StrCat(file, " says '", Trim(*text), "' on this machine"));
      total += static_cast<uint64_t>(*bytes);
      ++domains;
    }
    if (domains == 0)
      return Fail(
          ErrorCode::kUnsupported,
          StrCat("/", kGroup, " has no mbm_total_bytes; if the CPU counts it ",
                 "(cqm_mbm_total in /proc/cpuinfo), mount -t resctrl resctrl ", "/sys/fs/resctrl"));
    return total;
  }

  const std::string root_;
  uint64_t before_ = 0;
};

}  // namespace

std::unique_ptr<CounterSource> ResctrlSource(const CounterTarget& target) {
  return std::make_unique<Resctrl>(target.root);
}

}  // namespace pinion::harness
