// The memory controllers' own counters, as the kernel describes them below
// /sys/bus/event_source/devices: which bits of `config` an event sets is data there, not knowledge
// here.

#include <filesystem>
#include <map>
#include <optional>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/host/budget.h"
#include "harness/counters/perf_counter.h"
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

// Puts `value` at the bits that a format file names, "config:8-15".
Result<uint64_t> Place(uint64_t value, const std::string& format) {
  const std::vector<std::string> parts = Split(format, ':');
  if (parts.size() != 2 || parts[0] != "config" || parts[1].find(',') != std::string::npos)
    return Fail(ErrorCode::kUnsupported, StrCat("the format '", format, "' is not understood"));
  PINION_ASSIGN(const uint64_t shift, Number(Split(parts[1], '-')[0]));
  return value << shift;
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

// Bytes of one count, from NAME.scale and NAME.unit.
Result<double> UnitBytes(const std::string& device, const std::string& event) {
  const std::map<std::string, double> units = {
      {"Bytes", 1}, {"KiB", 1024}, {"MiB", 1024.0 * 1024}, {"GiB", 1024.0 * 1024 * 1024}};
  PINION_ASSIGN(const std::string scale, Text(device + "/events/" + event + ".scale"));
  PINION_ASSIGN(const std::string unit, Text(device + "/events/" + event + ".unit"));
  PINION_ASSIGN(const double factor, ParseDouble(scale, "scale"));
  const auto found = units.find(unit);
  if (found == units.end())
    return Fail(ErrorCode::kUnsupported, StrCat("the unit '", unit, "' is not understood"));
  return factor * found->second;
}

Result<UncoreEvent> Describe(const std::string& device, const std::string& event,
                             const char* name) {
  UncoreEvent found;
  found.name = name;
  PINION_ASSIGN(const std::string type, Text(device + "/type"));
  PINION_ASSIGN(const uint64_t number, Number(type));
  PINION_ASSIGN(const std::string text, Text(device + "/events/" + event));
  PINION_ASSIGN(found.config, Encode(device, text));
  PINION_ASSIGN(found.unit_bytes, UnitBytes(device, event));
  PINION_ASSIGN(const std::string cpus, Text(device + "/cpumask"));
  PINION_ASSIGN(found.cpus, ParseCpuList(cpus));
  found.type = static_cast<uint32_t>(number);
  return found;
}

class Uncore final : public CounterSource {
 public:
  explicit Uncore(std::string root) : root_(std::move(root)) {}
  const char* name() const override { return "uncore"; }

  Status Start() override {
    PINION_ASSIGN(events_, FindUncoreEvents(root_));
    for (size_t i = 0; i < events_.size(); ++i) {
      for (const int cpu : events_[i].cpus) {
        auto counter = PerfCounter::Open({events_[i].type, events_[i].config}, -1, cpu);
        if (!counter) return Unexpected(std::move(counter).error());
        counters_.push_back({i, std::move(*counter)});
      }
    }
    return {};
  }

  Result<std::vector<CounterValue>> Stop() override {
    std::map<std::string, double> sums;
    for (const auto& [event, counter] : counters_) {
      PINION_ASSIGN(const double count, counter.Read());
      sums[events_[event].name] += count * events_[event].unit_bytes;
    }
    std::vector<CounterValue> values;
    for (const auto& [name, sum] : sums) values.push_back({name, sum});
    return values;
  }

 private:
  const std::string root_;
  std::vector<UncoreEvent> events_;
  std::vector<std::pair<size_t, PerfCounter>> counters_;  // place in events_
};

}  // namespace

Result<std::vector<UncoreEvent>> FindUncoreEvents(const std::string& root) {
  std::vector<UncoreEvent> events;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(root + kDevices, ignored)) {
    const std::string device = entry.path(), name = entry.path().filename();
    if (!name.starts_with("uncore_imc")) continue;
    for (const auto& [event, known_as] : {std::pair("cas_count_read", "memory_read_bytes"),
                                          std::pair("cas_count_write", "memory_written_bytes")}) {
      if (!std::filesystem::exists(device + "/events/" + event, ignored)) continue;
      PINION_ASSIGN(UncoreEvent found, Describe(device, event, known_as));
      events.push_back(std::move(found));
    }
  }
  if (events.empty())
    return Fail(ErrorCode::kUnsupported,
                StrCat("/", kDevices, " has no memory controller (uncore_imc*) that counts reads ",
                       "and writes"));
  return events;
}

std::unique_ptr<CounterSource> UncoreSource(const CounterTarget& target) {
  return std::make_unique<Uncore>(target.root);
}

}  // namespace pinion::harness
