#include "harness/counters/counters.h"

#include <cstdio>

#include "engine/base/strings.h"
#include "harness/counters/sources.h"

namespace pinion::harness {

std::vector<std::unique_ptr<CounterSource>> CounterSources(const CounterTarget& target) {
  std::vector<std::unique_ptr<CounterSource>> sources;
  for (auto* make :
       {PerfSoftwareSource, PerfEventSource, UncoreSource, RaplSource, ResctrlSource, PcmSource})
    sources.push_back(make(target));
  return sources;
}

Counters Counters::Start(const CounterTarget& target) {
  Counters counters;
  for (auto& source : CounterSources(target)) {
    const Status started = source->Start();
    counters.running_.push_back({std::move(source), started ? "" : started.error().message});
  }
  return counters;
}

std::vector<CounterReading> Counters::Stop() {
  std::vector<CounterReading> readings;
  for (Running& running : running_) {
    CounterReading reading{running.source->name(), {}, running.unavailable};
    if (reading.unavailable.empty()) {
      auto values = running.source->Stop();
      if (values) {
        reading.values = std::move(*values);
      } else {
        reading.unavailable = values.error().message;
      }
    }
    readings.push_back(std::move(reading));
  }
  running_.clear();
  return readings;
}

const double* FindValue(const std::vector<CounterReading>& readings, const std::string& name) {
  for (const CounterReading& reading : readings)
    for (const CounterValue& value : reading.values)
      if (value.name == name) return &value.value;
  return nullptr;
}

Json ToJson(const std::vector<CounterReading>& readings) {
  Json object = Json::MakeObject();
  for (const CounterReading& reading : readings) {
    if (!reading.unavailable.empty()) {
      object.Set(reading.source, "not available, because " + reading.unavailable);
      continue;
    }
    Json values = Json::MakeObject();
    for (const CounterValue& value : reading.values) values.Set(value.name, value.value);
    object.Set(reading.source, std::move(values));
  }
  return object;
}

std::string Render(const std::vector<CounterReading>& readings) {
  constexpr size_t kNameWidth = 15;
  std::string text;
  for (const CounterReading& reading : readings) {
    std::string line = reading.source;
    line.resize(std::max(kNameWidth, line.size() + 1), ' ');
    if (!reading.unavailable.empty()) line += "not available, because " + reading.unavailable;
    const char* separator = "";
    for (const CounterValue& value : reading.values) {
      char number[32];
      std::snprintf(number, sizeof number, "%.4g", value.value);
      line += StrCat(separator, value.name, " ", number);
      separator = ", ";
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace pinion::harness
