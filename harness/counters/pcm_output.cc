// Output of Intel's tools. Columns and fields are found by name: their places differ between
// machines and versions.

#include <optional>

#include "engine/base/strings.h"
#include "harness/counters/sources.h"

namespace pinion::harness {
namespace {

constexpr double kMegabyte = 1e6;

using Fields = std::vector<std::string>;

tl::unexpected<CounterGap> Nothing(std::string reason) {
  return tl::unexpected(CounterGap(std::move(reason)));
}

// The whole lines: the last one may be cut short.
std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines = Split(text, '\n');
  if (!lines.empty()) lines.pop_back();
  return lines;
}

std::optional<double> NumberAt(const Fields& fields, size_t place) {
  if (place >= fields.size()) return std::nullopt;
  const auto number = ParseDouble(Trim(fields[place]), "sample");
  return number ? std::optional<double>(*number) : std::nullopt;
}

// The place of a name; with `groups`, the line above, only below that group.
std::optional<size_t> FindColumn(const Fields& names, const char* name,
                                 const Fields* groups = nullptr, const char* group = "") {
  for (size_t i = 0; i < names.size(); ++i)
    if (Trim(names[i]) == name && (!groups || (i < groups->size() && Trim((*groups)[i]) == group)))
      return i;
  return std::nullopt;
}

// The number after "NAME: ", up to the next ';'.
std::optional<double> NamedNumber(const std::string& line, const std::string& name) {
  for (const std::string& part : Split(line, ';')) {
    const std::string_view field = Trim(part);
    if (!field.starts_with(name + ":")) continue;
    const auto number = ParseDouble(Trim(field.substr(name.size() + 1)), name);
    if (number) return *number;
  }
  return std::nullopt;
}

// Milliseconds of a line "Time elapsed: 1001 ms".
std::optional<double> ElapsedMs(const std::string& line) {
  constexpr std::string_view kStart = "Time elapsed: ", kEnd = " ms";
  const std::string_view text = Trim(line);
  if (!text.starts_with(kStart) || !text.ends_with(kEnd)) return std::nullopt;
  const auto number = ParseDouble(
      text.substr(kStart.size(), text.size() - kStart.size() - kEnd.size()), "time elapsed");
  return number && *number > 0 ? std::optional<double>(*number) : std::nullopt;
}

}  // namespace

CountedValues ParsePcmMemory(const std::string& csv) {
  const std::vector<std::string> lines = LinesOf(csv);
  std::optional<size_t> read, written;
  size_t heading = 0;
  for (size_t i = 1; i < lines.size() && !(read && written); ++i) {
    const Fields groups = Split(lines[i - 1], ','), names = Split(lines[i], ',');
    read = FindColumn(names, "Read", &groups, "System");
    written = FindColumn(names, "Write", &groups, "System");
    heading = i;
  }
  if (!read || !written) return Nothing("its output has no columns 'Read' and 'Write' of 'System'");
  double read_mb_per_s = 0, written_mb_per_s = 0, samples = 0;
  for (size_t i = heading + 1; i < lines.size(); ++i) {
    const Fields fields = Split(lines[i], ',');
    const auto more_read = NumberAt(fields, *read), more_written = NumberAt(fields, *written);
    if (!more_read || !more_written) continue;
    read_mb_per_s += *more_read;
    written_mb_per_s += *more_written;
    ++samples;
  }
  if (samples == 0) return Nothing("its output has no sample: the load was too short");
  return std::vector<CounterValue>{
      {"memory_read_bytes_per_s", read_mb_per_s / samples * kMegabyte},
      {"memory_written_bytes_per_s", written_mb_per_s / samples * kMegabyte}};
}

CountedValues ParsePcmNuma(const std::string& csv) {
  std::optional<size_t> local, remote;
  double elapsed_ms = 0, local_lines = 0, remote_lines = 0;
  std::optional<double> sample_ms;
  for (const std::string& line : LinesOf(csv)) {
    const Fields fields = Split(line, ',');
    if (const auto ms = ElapsedMs(line)) {
      sample_ms = ms;
    } else if (Trim(fields[0]) == "Core") {
      local = FindColumn(fields, "Local DRAM accesses");
      remote = FindColumn(fields, "Remote DRAM accesses");
    } else if (Trim(fields[0]) == "*" && local && remote && sample_ms) {
      const auto more_local = NumberAt(fields, *local), more_remote = NumberAt(fields, *remote);
      if (!more_local || !more_remote) continue;
      local_lines += *more_local;
      remote_lines += *more_remote;
      elapsed_ms += *sample_ms;
      sample_ms.reset();
    }
  }
  if (!local || !remote)
    return Nothing("its output has no columns 'Local DRAM accesses' and 'Remote DRAM accesses'");
  if (elapsed_ms == 0) return Nothing("its output has no sample: the load was too short");
  const double scale = kLineBytes / (elapsed_ms * 1e-3);
  return std::vector<CounterValue>{{"memory_local_bytes_per_s", local_lines * scale},
                                   {"memory_remote_bytes_per_s", remote_lines * scale}};
}

CountedValues ParsePcmPower(const std::string& text) {
  struct Sample {
    double packages_j = 0, memory_j = 0, ms = 0;
  };
  Sample sum, sample;
  for (const std::string& line : LinesOf(text)) {
    if (line.starts_with("----")) {  // between samples: only now are all sockets there
      if (sample.ms > 0 && sample.packages_j > 0)
        sum = {sum.packages_j + sample.packages_j, sum.memory_j + sample.memory_j,
               sum.ms + sample.ms};
      sample = {};
    }
    if (const auto ms = ElapsedMs(line)) sample.ms = *ms;
    sample.packages_j += NamedNumber(line, "Consumed Joules").value_or(0);
    sample.memory_j += NamedNumber(line, "Consumed DRAM Joules").value_or(0);
  }
  if (sum.ms == 0) return Nothing("its output has no whole sample: the load was too short");
  return std::vector<CounterValue>{{"package_watts", sum.packages_j / sum.ms * 1e3},
                                   {"memory_watts", sum.memory_j / sum.ms * 1e3}};
}

tl::expected<double, CounterGap> ParseDcmiPower(const std::string& text) {
  constexpr std::string_view kStart = "Instantaneous power reading:", kEnd = "Watts";
  for (const std::string& line : Split(text, '\n')) {
    std::string_view field = Trim(line);
    if (!field.starts_with(kStart) || !field.ends_with(kEnd)) continue;
    field = Trim(field.substr(kStart.size(), field.size() - kStart.size() - kEnd.size()));
    const auto watts = ParseDouble(field, "power");
    if (!watts) break;
    if (*watts > 0) return *watts;
    return Nothing("the board's controller reports 0 W: it has no power meter");
  }
  return Nothing("the board's controller gives no power reading");
}

}  // namespace pinion::harness
