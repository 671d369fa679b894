// The last sections of report.html: how it was measured, where, and how to do it again.

#include <algorithm>
#include <vector>

#include "engine/base/strings.h"
#include "harness/report/page.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

Html Row(std::string_view name, const Html& value) {
  return Tag("tr", Tag("th", "", name) + Tag("td", value));
}

// {"a":1,"b":[..]} as rows; what is nested stays JSON.
Html RowsOf(const Json& object) {
  Html rows;
  if (!object.is_object()) return rows;
  for (const auto& [key, value] : object.object()) {
    const bool bytes = key.ends_with("_bytes") && value.is_int() && value.integer() > 0;
    std::string text = value.is_string() ? value.string() : value.Dump();
    if (bytes) text = FormatBytes(static_cast<uint64_t>(value.integer()));
    rows += Row(key, Text(value.is_null() ? "none" : text));
  }
  return rows;
}

std::string WorkloadText(const Results& results) {
  const Workload& load = results.definition.workload;
  std::vector<std::string> concurrency;
  for (const int clients : load.concurrency) concurrency.push_back(StrCat(clients));
  return StrCat("Every trial starts the engine in a process of its own, warms it up, generates ",
                load.output_len, " tokens for each of ", load.num_prompts, " prompts of ",
                load.prompt_len, " tokens as one batch, and then serves such prompts to ",
                Join(concurrency, ", "),
                " clients at a time, each sending its next request when the last is answered.");
}

}  // namespace

Html MethodSection(const Results& results) {
  Html text =
      Tag("p", "", WorkloadText(results)) +
      Tag("p", "",
          "The defaults are measured against themselves first. Then every round measures each "
          "configuration that is still in the race once, in random order and with the same "
          "prompts, the defaults twice: the second copy shows what difference noise alone makes "
          "(the floor). Who cannot be better than the best by what is worth having leaves. "
          "Configurations are compared within rounds by the log of the ratio, so that drift longer "
          "than a round cancels; figures are medians, intervals are the distribution-free ones "
          "from order statistics at 95 % or more, and with fewer than 6 rounds none is given. The "
          "leader must lie beyond both interval and floor in fresh rounds with fresh prompts; "
          "otherwise the defaults are recommended.") +
      Tag("p", "",
          StrCat("Throughput = output tokens/s of the batch. Latency = 1 / (TTFT + (",
                 results.definition.workload.output_len,
                 " - 1) × TPOT) with one client. Balanced = geometric mean of both, each relative "
                 "to the defaults."));
  Html rows;
  for (const MetricInfo& metric : Metrics())
    rows += Row(metric.name, Text(StrCat(metric.formula, " [", metric.unit, "]")));
  return text + Tag("table", "facts", rows);
}

Html TimeSection(const Results& results) {
  constexpr size_t kShown = 12;
  std::vector<std::pair<double, const Candidate*>> spent;
  for (const Candidate& candidate : results.candidates)
    if (candidate.seconds > 0) spent.emplace_back(candidate.seconds, &candidate);
  if (spent.empty()) return Tag("p", "faint", "No trial has ended yet.");
  std::stable_sort(spent.begin(), spent.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  Html rows;
  double rest = 0;
  for (size_t i = 0; i < spent.size(); ++i) {
    const auto& [seconds, candidate] = spent[i];
    if (i >= kShown) {
      rest += seconds;
      continue;
    }
    rows += Row(SettingsText(*candidate),
                Text(StrCat(FormatSeconds(seconds), " in ",
                            Counted(static_cast<size_t>(candidate->trials), "trial"))));
  }
  if (rest > 0) rows += Row(StrCat("the other ", spent.size() - kShown), Text(FormatSeconds(rest)));
  return Tag("table", "facts", rows);
}

Html MachineSection(const Results& results) {
  return Tag("table", "facts",
             RowsOf(results.machine) + RowsOf(results.budget) + RowsOf(results.model_facts));
}

Html ReproduceSection(const Results& results) {
  const std::string commit = results.commit.empty() ? "unknown" : results.commit;
  return Tag("pre", "command", results.command_line) +
         Tag("table", "facts",
             Row("version", Text(StrCat(results.version, ", commit ", commit))) +
                 Row("seed", Text(StrCat(results.definition.seed))) +
                 Row("measured", Text(StrCat(results.started_at, " to ", results.updated_at, ", ",
                                             FormatSeconds(results.elapsed_s)))) +
                 Row("every sample",
                     Text("results.db (table samples), results.json, results.csv"))) +
         Tag("details", Tag("summary", "", "The whole definition of the sweep") +
                            Tag("pre", "", ToJson(results.definition).Dump(2)));
}

}  // namespace pinion::harness
