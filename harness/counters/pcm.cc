// Intel's tools, which Debian bookworm has only as programs: children that write a sample per
// second. SIGINT ends them, so that they write the rest and restore the counters.

#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/counters/sources.h"
#include "harness/counters/tool.h"

namespace pinion::harness {
namespace {

class Pcm final : public CounterSource {
 public:
  using Parse = CountedValues (*)(const std::string&);
  Pcm(const CounterTarget& target, const char* program, std::vector<std::string> options,
      Parse parse)
      : target_(target), program_(program), options_(std::move(options)), parse_(parse) {}

  std::optional<CounterGap> Examine() override {
    std::error_code ignored;
    const std::string cpu = ReadFile(target_.root + "proc/cpuinfo", 1 << 20).value_or("");
    if (cpu.find("GenuineIntel") == std::string::npos)
      return CounterGap("Intel's tools support only Intel processors");
    path_ = FindTool(target_.root, program_);
    if (path_.empty()) return CounterGap(StrCat(program_, " is not installed"), "apt install pcm");
    if (!std::filesystem::exists(target_.root + "dev/cpu/0/msr", ignored))
      return CounterGap("/dev/cpu/0/msr is missing", "modprobe msr");
    if (!ReadableMsr()) return CounterGap("/dev/cpu/0/msr cannot be read; run as root");
    return std::nullopt;
  }

  std::optional<CounterGap> Start() override {
    std::vector<std::string> arguments = {path_, "1"};
    arguments.insert(arguments.end(), options_.begin(), options_.end());
    return tool_.Start(arguments);
  }

  CountedValues Stop(double) override {
    CountedValues values = parse_(tool_.Finish(SIGINT, target_.patience_s));
    if (values) return values;
    return tl::unexpected(CounterGap(tool_.WhyNothing(values.error().reason)));
  }

 private:
  bool ReadableMsr() const {
    return access((target_.root + "dev/cpu/0/msr").c_str(), R_OK | W_OK) == 0;
  }

  const CounterTarget target_;
  const char* const program_;
  const std::vector<std::string> options_;
  const Parse parse_;
  std::string path_;
  Tool tool_;
};

}  // namespace

// -f: lines come as they are measured, and are there if the tool has to be killed.
Source PcmMemorySource(const CounterTarget& target) {
  return std::make_unique<Pcm>(target, "pcm-memory", std::vector<std::string>{"-nc", "-csv", "-f"},
                               ParsePcmMemory);
}

Source PcmNumaSource(const CounterTarget& target) {
  return std::make_unique<Pcm>(target, "pcm-numa", std::vector<std::string>{"-csv"}, ParsePcmNuma);
}

// Without -csv: until 202502 the option only turns flushing off, from 202509 on it gives another
// format. -1: leaves the frequency bands and the memory's sleep states out of the output.
Source PcmPowerSource(const CounterTarget& target) {
  return std::make_unique<Pcm>(target, "pcm-power",
                               std::vector<std::string>{"-m", "-1", "-p", "-1"}, ParsePcmPower);
}

}  // namespace pinion::harness
