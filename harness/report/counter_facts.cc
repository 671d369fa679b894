// Figures of the machine's counters for each configuration.

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "harness/report/facts.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

struct CounterColumn {
  const char *title, *metric;
};
constexpr CounterColumn kCounterColumns[] = {{"memory traffic", "memory_bytes_per_s"},
                                             {"from its own node", "memory_local_bytes_per_s"},
                                             {"from other nodes", "memory_remote_bytes_per_s"},
                                             {"frequency", "frequency_hz"},
                                             {"packages", "package_watts"},
                                             {"at the wall", "wall_watts"},
                                             {"energy per token", "joules_per_token"}};

// Each quantity without a source, once: "energy: not available, because ...; to enable it: ...".
std::string Absent(const Results& results) {
  std::vector<std::string> gaps;
  for (const Json& check : ChecksOf(results)) {
    if (!IsCounter(check) || TextAt(check, "state") == "ok") continue;
    const std::string name = TextAt(check, "name").substr(std::string_view(kCounterCheck).size());
    const std::string fix = TextAt(check, "fix");
    gaps.push_back(StrCat(name, ": not available, because ", TextAt(check, "reason"),
                          fix.empty() ? "" : StrCat("; to enable it: ", fix), "."));
  }
  return Join(gaps, " ");
}

}  // namespace

TextTable CounterFacts(const Results& results) {
  TextTable table{"Hardware counters", Absent(results), {"configuration"}, {}};
  std::vector<CounterColumn> columns;
  for (const CounterColumn& column : kCounterColumns) {
    bool any = false;
    for (const Candidate& candidate : results.candidates)
      any = any || candidate.Find(column.metric, 0);
    if (any) columns.push_back(column);
  }
  for (const CounterColumn& column : columns) table.head.emplace_back(column.title);
  if (columns.empty()) return table;
  for (const Candidate& candidate : results.candidates) {
    TextTable::Row row{{SettingsText(candidate)}};
    bool any = false;
    for (const CounterColumn& column : columns) {
      const Series* series = candidate.Find(column.metric, 0);
      any = any || series;
      row.cells.push_back(
          series ? FormatFigure(FindMetric(column.metric)->unit, series->estimate.median) : "-");
    }
    if (any) table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace pinion::harness
