#include "harness/counters/counters.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/strings.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

// Whether a source may not be started beside one that runs.
bool Excludes(const CounterSourceInfo& running, const CounterSourceInfo& next) {
  return next.programs != CounterSourceInfo::kNone && running.programs == next.programs &&
         (running.past_the_kernel || next.past_the_kernel);
}

// The first source of a quantity that can be used beside those in `used`, and is accepted by
// `start`; the gaps of the others are joined in the reading.
std::unique_ptr<CounterSource> Choose(const CounterChoice& choice, const CounterTarget& target,
                                      std::vector<CounterSourceInfo>& used,
                                      std::optional<CounterGap> (*start)(CounterSource&),
                                      CounterReading& reading) {
  reading.quantity = choice.quantity;
  std::vector<std::string> reasons;
  for (const CounterSourceInfo& info : choice.sources) {
    const auto user = std::find_if(used.begin(), used.end(),
                                   [&](const auto& one) { return Excludes(one, info); });
    auto source = info.make(target);
    std::optional<CounterGap> gap = source->Examine();
    if (!gap && user != used.end())
      gap = CounterGap(StrCat("it would program the counters that ", user->name, " uses"));
    if (!gap) gap = start(*source);
    if (!gap) {
      used.push_back(info);
      reading.source = info.name;
      reading.fix.clear();
      return source;
    }
    reasons.push_back(StrCat(info.name, ": ", gap->reason));
    if (reading.fix.empty()) reading.fix = gap->fix;
  }
  reading.unavailable = Join(reasons, "; ");
  return nullptr;
}

// The value of that name; nullptr if no source has it.
const double* FindValue(const std::vector<CounterReading>& readings, const std::string& name) {
  for (const CounterReading& reading : readings)
    for (const CounterValue& value : reading.values)
      if (value.name == name) return &value.value;
  return nullptr;
}

double Sum(const double* a, const double* b) { return (a ? *a : 0) + (b ? *b : 0); }

}  // namespace

Counters Counters::Start(const CounterTarget& target) {
  Counters counters;
  std::vector<CounterSourceInfo> used;
  for (const CounterChoice& choice : CounterOrder()) {
    Running running;
    running.source = Choose(
        choice, target, used, [](CounterSource& source) { return source.Start(); },
        running.reading);
    running.start_ns = kMachineClock.NowNs();
    counters.running_.push_back(std::move(running));
  }
  return counters;
}

std::vector<CounterReading> Counters::Stop() {
  std::vector<CounterReading> readings;
  for (Running& running : running_) {
    if (running.source) {
      const double seconds = static_cast<double>(kMachineClock.NowNs() - running.start_ns) * 1e-9;
      running.reading.seconds = seconds;
      CountedValues values = running.source->Stop(seconds);
      if (values) {
        running.reading.values = std::move(*values);
      } else {
        running.reading.unavailable =
            StrCat(std::exchange(running.reading.source, ""), ": ", values.error().reason);
        running.reading.fix = values.error().fix;
      }
    }
    readings.push_back(std::move(running.reading));
  }
  running_.clear();
  return readings;
}

std::vector<CounterReading> ExamineCounters(const CounterTarget& target) {
  std::vector<CounterReading> readings;
  std::vector<CounterSourceInfo> used;
  for (const CounterChoice& choice : CounterOrder()) {
    CounterReading reading;
    Choose(
        choice, target, used,
        [](CounterSource&) -> std::optional<CounterGap> { return std::nullopt; }, reading);
    readings.push_back(std::move(reading));
  }
  return readings;
}

std::optional<double> JoulesOf(const std::vector<CounterReading>& readings) {
  for (const CounterReading& reading : readings)
    for (const CounterValue& value : reading.values)
      if (value.name == "package_watts") return value.value * reading.seconds;
  return std::nullopt;
}

std::vector<CounterValue> FiguresOf(const std::vector<CounterReading>& readings) {
  std::vector<CounterValue> figures;
  const double* read = FindValue(readings, "memory_read_bytes_per_s");
  const double* written = FindValue(readings, "memory_written_bytes_per_s");
  const double* local = FindValue(readings, "memory_local_bytes_per_s");
  const double* remote = FindValue(readings, "memory_remote_bytes_per_s");
  if (read || written) figures.push_back({"memory_bytes_per_s", Sum(read, written)});
  if (local) figures.push_back({"memory_local_bytes_per_s", *local});
  if (remote) figures.push_back({"memory_remote_bytes_per_s", *remote});
  for (const char* name : {"frequency_hz", "package_watts", "wall_watts"})
    if (const double* value = FindValue(readings, name)) figures.push_back({name, *value});
  return figures;
}

Json ToJson(const std::vector<CounterReading>& readings) {
  Json object = Json::MakeObject();
  for (const CounterReading& reading : readings) {
    if (!reading.unavailable.empty()) {
      object.Set(reading.quantity, "not available, because " + reading.unavailable);
      continue;
    }
    Json values = Json::MakeObject();
    values.Set("source", reading.source);
    for (const CounterValue& value : reading.values) values.Set(value.name, value.value);
    object.Set(reading.quantity, std::move(values));
  }
  return object;
}

std::string Render(const std::vector<CounterReading>& readings) {
  constexpr size_t kNameWidth = 8;
  std::string text;
  for (const CounterReading& reading : readings) {
    std::string line = reading.quantity;
    line.resize(std::max(kNameWidth, line.size() + 1), ' ');
    if (!reading.unavailable.empty()) line += "not available, because " + reading.unavailable;
    const char* separator = "";
    for (const CounterValue& value : reading.values) {
      line += StrCat(separator, value.name, " ", Printf("%.4g", value.value));
      separator = ", ";
    }
    if (!reading.source.empty()) line += StrCat(" (", reading.source, ")");
    text += line + "\n";
  }
  return text;
}

}  // namespace pinion::harness
