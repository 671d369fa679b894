// Memory traffic by the kernel's resctrl: bytes that its default group (every process that nobody
// has put elsewhere) moved past each last-level cache, and the part of them that stayed local.

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

  std::optional<CounterGap> Examine() override {
    const auto now = Now();
    return now ? std::nullopt : std::optional<CounterGap>(now.error());
  }

  std::optional<CounterGap> Start() override {
    const auto now = Now();
    if (!now) return now.error();
    before_ = *now;
    return std::nullopt;
  }

  CountedValues Stop(double seconds) override {
    const auto after = Now();
    if (!after) return tl::unexpected(after.error());
    const double total = after->total - before_.total, local = after->local - before_.local;
    return std::vector<CounterValue>{{"memory_local_bytes_per_s", local / seconds},
                                     {"memory_remote_bytes_per_s", (total - local) / seconds}};
  }

 private:
  struct Bytes {
    double total = 0, local = 0;
  };

  // Of all domains, mon_data/mon_L3_NN/mbm_{total,local}_bytes.
  tl::expected<Bytes, CounterGap> Now() const {
    Bytes sum;
    size_t domains = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(root_ + kGroup, ignored)) {
      const std::string folder = entry.path().string();
      if (!std::filesystem::exists(folder + "/mbm_local_bytes", ignored)) continue;
      for (const auto& [file, bytes] :
           {std::pair("mbm_total_bytes", &sum.total), std::pair("mbm_local_bytes", &sum.local)}) {
        const std::string text = ReadFile(folder + "/" + file, 4096).value_or("");
        const auto number = ParseInt(Trim(text), file);
        if (!number)  // the kernel writes "Unavailable" or "Error" there
          return tl::unexpected(CounterGap(StrCat(file, " says '", Trim(text), "'")));
        *bytes += static_cast<double>(*number);
      }
      ++domains;
    }
    if (domains > 0) return sum;
    const std::string cpu = ReadFile(root_ + "proc/cpuinfo", 1 << 20).value_or("");
    if (cpu.find("cqm_mbm_local") == std::string::npos)
      return tl::unexpected(CounterGap("the CPU does not count it (no cqm_mbm_local)"));
    return tl::unexpected(
        CounterGap("it is not mounted", "mount -t resctrl resctrl /sys/fs/resctrl"));
  }

  const std::string root_;
  Bytes before_;
};

}  // namespace

Source ResctrlSource(const CounterTarget& target) { return std::make_unique<Resctrl>(target.root); }

}  // namespace pinion::harness
