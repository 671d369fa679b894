// Counters of devices outside the cores, as the kernel describes them below
// /sys/bus/event_source/devices: which bits of `config` an event sets is data there.

#include <filesystem>
#include <map>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/counters/sources.h"

namespace pinion::harness {
namespace {

constexpr char kDevices[] = "sys/bus/event_source/devices";

Result<std::string> Text(const std::string& path) {
  PINION_ASSIGN(const std::string text, ReadFile(path, 4096));
  return std::string(Trim(text));
}

// "0x04" or "4".
Result<uint64_t> Number(const std::string& text) {
  size_t used = 0;
  try {
    const uint64_t value = std::stoull(text, &used, 0);
    if (used == text.size()) return value;
  } catch (const std::exception&) {
  }
  return Fail(ErrorCode::kUnsupported, StrCat("'", text, "' in sysfs is not a number"));
}

// Puts `value` at the bits that a format file names, its lowest bits first:
// "config:8-15,24-27". Fails if it does not fit.
Result<uint64_t> Place(uint64_t value, const std::string& format) {
  const std::vector<std::string> parts = Split(format, ':');
  if (parts.size() != 2 || parts[0] != "config")
    return Fail(ErrorCode::kUnsupported, StrCat("the format '", format, "' is not understood"));
  uint64_t placed = 0, left = value;
  for (const std::string& range : Split(parts[1], ',')) {
    const std::vector<std::string> ends = Split(range, '-');
    PINION_ASSIGN(const uint64_t first, Number(ends.front()));
    PINION_ASSIGN(const uint64_t last, Number(ends.back()));
    if (first > last || last > 63)
      return Fail(ErrorCode::kUnsupported, StrCat("the format '", format, "' is not understood"));
    const uint64_t width = last - first + 1;
    const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
    placed |= (left & mask) << first;
    left = width == 64 ? 0 : left >> width;
  }
  if (left == 0) return placed;
  return Fail(ErrorCode::kUnsupported,
              StrCat("this kernel's format '", format, "' has no room for it; a newer one has"));
}

// "event=0x04,umask=0x03", by the device's format files.
Result<uint64_t> Encode(const std::string& device, const std::string& event) {
  uint64_t config = 0;
  for (const std::string& term : Split(event, ',')) {
    const std::vector<std::string> sides = Split(term, '=');
    PINION_ASSIGN(const uint64_t value, sides.size() > 1 ? Number(sides[1]) : Result<uint64_t>(1));
    PINION_ASSIGN(const std::string format, Text(device + "/format/" + sides[0]));
    PINION_ASSIGN(const uint64_t bits, Place(value, format));
    config |= bits;
  }
  return config;
}

// One count in bytes or joules, from NAME.scale and NAME.unit.
Result<double> UnitOf(const std::string& device, const std::string& event) {
  const std::map<std::string, double> units = {{"Bytes", 1},
                                               {"KiB", 1024},
                                               {"MiB", 1024.0 * 1024},
                                               {"GiB", 1024.0 * 1024 * 1024},
                                               {"Joules", 1}};
  PINION_ASSIGN(const std::string scale, Text(device + "/events/" + event + ".scale"));
  PINION_ASSIGN(const std::string unit, Text(device + "/events/" + event + ".unit"));
  PINION_ASSIGN(const double factor, ParseDouble(scale, "scale"));
  const auto found = units.find(unit);
  if (found == units.end())
    return Fail(ErrorCode::kUnsupported, StrCat("the unit '", unit, "' is not understood"));
  return factor * found->second;
}

// `event`: "event=0x04,umask=0x03".
Result<DeviceEvent> Describe(const std::string& device, const std::string& event,
                             const std::string& name, double unit) {
  DeviceEvent found;
  found.name = name;
  found.unit = unit;
  PINION_ASSIGN(const std::string type, Text(device + "/type"));
  PINION_ASSIGN(const uint64_t number, Number(type));
  PINION_ASSIGN(found.event.config, Encode(device, event));
  PINION_ASSIGN(const std::string cpus, Text(device + "/cpumask"));
  PINION_ASSIGN(found.cpus, ParseCpuList(cpus));
  found.event.type = static_cast<uint32_t>(number);
  return found;
}

// An event that sysfs names.
Result<DeviceEvent> DescribeNamed(const std::string& device, const std::string& event,
                                  const std::string& name) {
  PINION_ASSIGN(const std::string terms, Text(device + "/events/" + event));
  PINION_ASSIGN(const double unit, UnitOf(device, event));
  return Describe(device, terms, name, unit);
}

class DeviceCounters final : public CounterSource {
 public:
  using Find = DeviceEvents (*)(const std::string& root);
  DeviceCounters(std::string root, Find find) : root_(std::move(root)), find_(find) {}

  std::optional<CounterGap> Examine() override {
    auto events = find_(root_);
    if (!events) return events.error();
    events_ = std::move(*events);
    const auto first = PerfCounter::Open(events_[0].event, -1, events_[0].cpus.front());
    return first ? std::nullopt : std::optional<CounterGap>(first.error());
  }

  std::optional<CounterGap> Start() override {
    for (size_t i = 0; i < events_.size(); ++i) {
      for (const int cpu : events_[i].cpus) {
        auto counter = PerfCounter::Open(events_[i].event, -1, cpu);
        if (!counter) return counter.error();
        counters_.emplace_back(i, std::move(*counter));
      }
    }
    return std::nullopt;
  }

  CountedValues Stop(double seconds) override {
    std::map<std::string, double> sums;
    for (const auto& [event, counter] : counters_) {
      const auto count = counter.Read();
      if (!count) return tl::unexpected(count.error());
      sums[events_[event].name] += *count * events_[event].unit / seconds;
    }
    std::vector<CounterValue> values;
    for (const auto& [name, sum] : sums) values.push_back({name, sum});
    return values;
  }

 private:
  const std::string root_;
  const Find find_;
  std::vector<DeviceEvent> events_;
  std::vector<std::pair<size_t, PerfCounter>> counters_;  // place in events_
};

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A device that counts on no CPU cannot be opened.
DeviceEvents Usable(std::vector<DeviceEvent> events, const std::string& otherwise) {
  for (const DeviceEvent& event : events)
    if (event.cpus.empty()) return tl::unexpected(CounterGap("its cpumask in sysfs is empty"));
  if (events.empty()) return tl::unexpected(CounterGap(otherwise));
  return events;
}

}  // namespace

DeviceEvents FindMemoryControllers(const std::string& root) {
  std::vector<DeviceEvent> events;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(root + kDevices, ignored)) {
    const std::string device = entry.path(), name = entry.path().filename();
    if (!name.starts_with("uncore_imc")) continue;
    for (const auto& [event, known_as] :
         {std::pair("cas_count_read", "memory_read_bytes_per_s"),
          std::pair("cas_count_write", "memory_written_bytes_per_s")}) {
      if (!Exists(device + "/events/" + event)) continue;
      auto found = DescribeNamed(device, event, known_as);
      if (!found) return tl::unexpected(CounterGap(std::move(found).error()));
      events.push_back(std::move(*found));
    }
  }
  return Usable(std::move(events),
                StrCat("/", kDevices, " has no memory controller (uncore_imc*) that counts reads ",
                       "and writes"));
}

// Data beats of 64 bytes at the twelve channels. Source: local_processor_read_data_beats_cs0 and
// its like (Zen 4), local_or_remote_socket_read_data_beats_dram_0 and its like (Zen 5), in
// tools/perf/pmu-events/arch/x86/amdzen{4,5}/data-fabric.json of Linux.
DeviceEvents FindAmdFabric(const std::string& root) {
  constexpr unsigned kChannels = 12, kFirstChannel = 0x1f, kNextChannel = 0x40;
  const std::string device = StrCat(root, kDevices, "/amd_df");
  if (!Exists(device)) return tl::unexpected(CounterGap(StrCat("/", kDevices, " has no amd_df")));
  const std::string cpu = ReadFile(root + "proc/cpuinfo", 1 << 20).value_or("");
  const bool zen5 = cpu.find("cpu family\t: 26") != std::string::npos;
  const bool zen4 = cpu.find("cpu family\t: 25") != std::string::npos &&
                    cpu.find("perfmon_v2") != std::string::npos;
  if (!zen4 && !zen5) return tl::unexpected(CounterGap("only Zen 4 and Zen 5 are known"));
  using Mask = std::pair<const char*, const char*>;
  const char* const read = "memory_read_bytes_per_s";
  const char* const written = "memory_written_bytes_per_s";
  const std::vector<Mask> masks =
      zen5 ? std::vector<Mask>{{"0xffe", read}, {"0xfff", written}}
           : std::vector<Mask>{
                 {"0x7fe", read}, {"0xbfe", read}, {"0x7ff", written}, {"0xbff", written}};
  std::vector<DeviceEvent> events;
  for (unsigned channel = 0; channel < kChannels; ++channel) {
    for (const auto& [mask, name] : masks) {
      const std::string terms =
          StrCat("event=", kFirstChannel + channel * kNextChannel, ",umask=", mask);
      auto found = Describe(device, terms, name, kLineBytes);
      if (!found) return tl::unexpected(CounterGap(std::move(found).error()));
      events.push_back(std::move(*found));
    }
  }
  return Usable(std::move(events), "");
}

DeviceEvents FindPackageEnergy(const std::string& root) {
  const std::string device = StrCat(root, kDevices, "/power");
  if (!Exists(device + "/events/energy-pkg"))
    return tl::unexpected(
        CounterGap(StrCat("/", kDevices, "/power has no energy-pkg"), "modprobe rapl"));
  auto found = DescribeNamed(device, "energy-pkg", "package_watts");
  if (!found) return tl::unexpected(CounterGap(std::move(found).error()));
  return Usable({std::move(*found)}, "");
}

Source UncoreSource(const CounterTarget& target) {
  return std::make_unique<DeviceCounters>(target.root, FindMemoryControllers);
}
Source AmdFabricSource(const CounterTarget& target) {
  return std::make_unique<DeviceCounters>(target.root, FindAmdFabric);
}
Source PerfPowerSource(const CounterTarget& target) {
  return std::make_unique<DeviceCounters>(target.root, FindPackageEnergy);
}

}  // namespace pinion::harness
