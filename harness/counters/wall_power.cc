// Power at the wall, as the machine's own meters see it: the kernel's hwmon, and the board's
// controller through ipmitool. Both tell the power at a moment, so a thread reads them.

#include <algorithm>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/counters/sampler.h"
#include "harness/counters/sources.h"
#include "harness/counters/tool.h"

namespace pinion::harness {
namespace {

// A reading takes the controller about a second, and costs a process.
constexpr double kHwmonSeconds = 1, kIpmiSeconds = 2;

std::string TextOf(const std::string& path) {
  return std::string(Trim(ReadFile(path, 4096).value_or("")));
}

// The files of /sys/class/hwmon that measure the power of the machine: of an ACPI power meter all,
// of power supplies their inputs ("pin"). Others measure a part: a graphics card, a CPU.
std::vector<std::string> WallMeters(const std::string& root) {
  std::vector<std::string> acpi, supplies;
  std::error_code ignored;
  for (const auto& chip : std::filesystem::directory_iterator(root + "sys/class/hwmon", ignored)) {
    const bool meter = TextOf(chip.path() / "name") == "power_meter";
    for (const auto& file : std::filesystem::directory_iterator(chip.path(), ignored)) {
      const std::string name = file.path().filename();
      const size_t end = name.find('_');
      if (!name.starts_with("power") || end == std::string::npos) continue;
      const std::string label = TextOf(chip.path() / (name.substr(0, end) + "_label"));
      const std::string kind = name.substr(end);
      if (meter && (kind == "_average" || kind == "_input")) acpi.push_back(file.path());
      if (kind == "_input" && label.starts_with("pin")) supplies.push_back(file.path());
    }
  }
  std::vector<std::string>& found = acpi.empty() ? supplies : acpi;
  std::sort(found.begin(), found.end());
  if (!acpi.empty()) found.resize(1);  // its average and its input are the same power
  return found;
}

tl::expected<double, CounterGap> WattsOf(const std::vector<std::string>& files) {
  double microwatts = 0;
  for (const std::string& file : files) {
    const std::string text = TextOf(file);
    if (text.empty()) return tl::unexpected(CounterGap(file + " cannot be read; run as root"));
    const auto number = ParseInt(text, file);
    if (!number || *number < 0)
      return tl::unexpected(CounterGap(StrCat(file, " says '", text, "'")));
    microwatts += static_cast<double>(*number);
  }
  return microwatts * 1e-6;
}

class Wall : public CounterSource {
 public:
  std::optional<CounterGap> Start() override {
    sampler_.emplace([this] { return Watts(); }, every_s_);
    return std::nullopt;
  }
  CountedValues Stop(double) override {
    const auto watts = sampler_->Stop();
    if (!watts) return tl::unexpected(watts.error());
    return std::vector<CounterValue>{{"wall_watts", *watts}};
  }

 protected:
  explicit Wall(double every_s) : every_s_(every_s) {}
  virtual tl::expected<double, CounterGap> Watts() const = 0;
  void EndSampling() { sampler_.reset(); }  // before a derived class ends

 private:
  const double every_s_;
  std::optional<Sampler> sampler_;
};

class Hwmon final : public Wall {
 public:
  explicit Hwmon(const CounterTarget& target) : Wall(kHwmonSeconds), root_(target.root) {}
  ~Hwmon() override { EndSampling(); }

  std::optional<CounterGap> Examine() override {
    files_ = WallMeters(root_);
    if (files_.empty())
      return CounterGap("/sys/class/hwmon has no meter of the whole machine",
                        "modprobe acpi_power_meter");
    const auto watts = Watts();
    return watts ? std::nullopt : std::optional<CounterGap>(watts.error());
  }

 private:
  tl::expected<double, CounterGap> Watts() const override { return WattsOf(files_); }

  const std::string root_;
  std::vector<std::string> files_;
};

class Ipmi final : public Wall {
 public:
  explicit Ipmi(const CounterTarget& target) : Wall(kIpmiSeconds), target_(target) {}
  ~Ipmi() override { EndSampling(); }

  std::optional<CounterGap> Examine() override {
    path_ = FindTool(target_.root, "ipmitool");
    std::error_code ignored;
    const auto there = [&](const char* device) {
      return std::filesystem::exists(target_.root + device, ignored);
    };
    if (!there("dev/ipmi0") && !there("dev/ipmi/0") && !there("dev/ipmidev/0"))
      return CounterGap("the board has no controller at /dev/ipmi0",
                        "modprobe ipmi_si; modprobe ipmi_devintf");
    if (path_.empty()) return CounterGap("ipmitool is not installed", "apt install ipmitool");
    return std::nullopt;
  }

 private:
  tl::expected<double, CounterGap> Watts() const override {
    Tool tool;
    if (auto gap = tool.Start({path_, "dcmi", "power", "reading"})) return tl::unexpected(*gap);
    auto watts = ParseDcmiPower(tool.Finish(0, target_.patience_s));
    if (!watts) return tl::unexpected(CounterGap(tool.WhyNothing(watts.error().reason)));
    return watts;
  }

  const CounterTarget target_;
  std::string path_;
};

}  // namespace

Source HwmonSource(const CounterTarget& target) { return std::make_unique<Hwmon>(target); }

Source IpmiSource(const CounterTarget& target) { return std::make_unique<Ipmi>(target); }

}  // namespace pinion::harness
