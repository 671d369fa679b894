// The last sections of report.html: how it was measured, where, and how to do it again.

#include <algorithm>
#include <vector>

#include "engine/base/strings.h"
#include "harness/report/facts.h"
#include "harness/report/page.h"
#include "harness/report/words.h"
#include "harness/space/settings.h"

namespace pinion::harness {
namespace {

Html Row(std::string_view name, const Html& value) {
  return Tag("tr", Tag("th", "", name) + Tag("td", value));
}

bool HasReplicas(const Results& results) {
  return std::any_of(results.candidates.begin(), results.candidates.end(),
                     [](const Candidate& candidate) {
                       return candidate.status != CandidateStatus::kInfeasible &&
                              ReplicasOf(candidate.settings) > 1;
                     });
}

std::string WorkloadText(const Results& results) {
  const Workload& load = results.definition.workload;
  std::vector<std::string> concurrency;
  for (const int clients : load.concurrency) concurrency.push_back(StrCat(clients));
  return StrCat("Every trial starts the engine in a process of its own, warms it up, generates ",
                load.output_len, " tokens for each of ", load.num_prompts, " prompts of ",
                load.prompt_len, load.name.empty() ? "" : StrCat(" (", load.name, ", medians)"),
                " tokens as one batch, and serves such prompts to ", Join(concurrency, ", "),
                " clients at a time, each sending its next request when the last is answered. The "
                "order of these is drawn anew for every round; each of the latter has a warm-up of "
                "its own.",
                HasReplicas(results)
                    ? " Because several replicas are among the configurations, all of them are "
                      "measured as servers over HTTP: each conversation goes to the replica with "
                      "the fewest requests under way, and stays there."
                    : "");
}

}  // namespace

Html MethodSection(const Results& results) {
  const Html text =
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
  return text + Tag("details", Tag("summary", "", "Metrics and their formulas") +
                                   ToHtml(MetricFacts(results), ""));
}

Html TimeSection(const Results& results) { return ToHtml(TimeFacts(results), ""); }

Html MachineSection(const Results& results) {
  return ToHtml(HygieneFacts(results), "h3") + ToHtml(MachineFacts(results), "h3") +
         Tag("details", Tag("summary", "", "Environment: engine, compiler, kernel, cgroup") +
                            ToHtml(EnvironmentFacts(results), ""));
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
