// The last sections of report.html: how it was measured, where, and how to do it again.

#include <algorithm>
#include <vector>

#include "engine/base/strings.h"
#include "harness/report/facts.h"
#include "harness/report/page.h"
#include "harness/report/pair_words.h"
#include "harness/report/words.h"
#include "harness/stats/rules.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

Html Row(std::string_view name, const Html& value) {
  return Tag("tr", RowHead(name) + Tag("td", value));
}

bool HasReplicas(const Results& results) {
  return std::any_of(results.candidates.begin(), results.candidates.end(),
                     [](const Candidate& candidate) {
                       return candidate.status != CandidateStatus::kInfeasible &&
                              candidate.configuration.replicas > 1;
                     });
}

// One sentence about the closed loops and one about the open ones.
std::string LoopsText(const Workload& load, bool has_batch) {
  std::vector<std::string> clients, rates;
  for (const LoadLevel level : load.levels())
    (level.is_open() ? rates : clients).push_back(LevelText(level));
  for (size_t i = 0; i + 1 < clients.size(); ++i) clients[i] = LevelKey(load.concurrency[i]);
  for (size_t i = 0; i + 1 < rates.size(); ++i) rates[i].resize(rates[i].find(' '));
  std::string text;
  if (!clients.empty())
    text += StrCat(
        " It serves such prompts to ", Listed(clients),
        " at a time, each of which sends its next request when the last is answered, and measures "
        "that from the first answer of every client (later if the rate still rises or falls) until "
        "a client finds no further request.");
  if (!rates.empty())
    text += StrCat(
        " It sends such prompts at ", Listed(rates),
        ", at random times whether or not earlier ones are answered, and measures that from the "
        "time at which a tenth of them were due (later if the rate still rises or falls) until the "
        "last was due; a request that is cut off counts as if it had been answered then.");
  if (text.empty()) return text;
  return StrCat(text, has_batch ? " The batch and these" : " These",
                " loads come in a new random order in every round, each load with a warm-up of its "
                "own.");
}

std::string WorkloadText(const Results& results) {
  const Workload& workload = results.definition.workload;
  const LoadPlan& load = workload.load;
  const bool has_batch = RunsBatch(results.definition);
  return StrCat(
      "Every trial starts the configuration's server, warms it up over HTTP and generates ",
      load.shape.output_len(), " tokens for each of ", has_batch ? "" : "at least ",
      (results.batch_prompts > 0 ? results.batch_prompts : load.num_prompts), " prompts of ",
      load.shape.prompt_len(),
      load.shape.name == kFixedShape ? "" : StrCat(" (", load.shape.name, ", medians)"),
      has_batch ? " tokens as one batch." : " tokens under each of its loads.",
      LoopsText(workload, has_batch),
      workload.slo
          ? " Then the trial searches for the highest load at which enough requests meet the "
            "SLO; a request that is cut off after it missed a limit counts as missed."
          : "",
      HasReplicas(results)
          ? " A server with several engines gives each request to the one that has its prefix or "
            "the least to do."
          : "");
}

// How a sweep decides, and how a comparison of two does.
std::string DecisionText(const Results& results) {
  if (IsPair(results))
    return "Every round measures each of the two once, in random order and with the same prompts. "
           "If memory holds both servers, they run at once and take turns, a short load at a time, "
           "so that both meet the same disturbances; a round's difference is the median of its "
           "turns'. Else each trial has a server of its own. A trial is compared with those of the "
           "other side among the three before it "
           "and the three after it, by which of the two was faster, and the nearer the more, so "
           "that drift beyond a few trials cancels. The difference is the weighted median of these "
           "comparisons. Its 99 % interval has the differences after whose removal the two could "
           "be exchanged in every round: it rests on the random order alone, so that two equal "
           "ones are told apart in at most 1 % of comparisons, in any noise. One is called "
           "better if the interval is a gain and the difference exceeds the smallest one worth "
           "having.";
  return "First the defaults are measured against themselves. Then every round measures each "
         "configuration that is still in the race once, in random order and with the same "
         "prompts, and the defaults twice: the second copy shows the difference that noise alone "
         "makes (the floor). A configuration is dropped when it can no longer beat the best by "
         "the smallest difference worth having. "
         "Configurations are compared within rounds by the log of the ratio, so that drift longer "
         "than a round cancels. Figures are medians; intervals are distribution-free, from order "
         "statistics, with a coverage of at least 95 %, and need 6 rounds. The leaders and "
         "runners-up, at most three, are then measured against the defaults in fresh rounds with "
         "fresh prompts. One is recommended if its whole interval is a gain, and the gain exceeds "
         "the floor and the smallest difference worth having; the level of these intervals is "
         "corrected for all comparisons of the sweep (Holm), so that any of them is wrong in at "
         "most " +
         Percent(kFamilyLevel) + " of sweeps. Otherwise the defaults stay.";
}

}  // namespace

Html MethodSection(const Results& results) {
  const Html text =
      Tag("p", "", WorkloadText(results)) + ToHtml(LoadFacts(results), "h3") +
      Tag("p", "", DecisionText(results)) +
      Tag("p", "",
          StrCat("Throughput = output tokens/s of the batch. Latency = 1 / (TTFT + (",
                 results.definition.workload.load.shape.output_len(),
                 " - 1) × TPOT) with one client. Balanced = geometric mean of both, each relative "
                 "to the defaults."));
  return text + Tag("details", Tag("summary", "", "Glossary") + ToHtml(WordFacts(results), "")) +
         Tag("details",
             Tag("summary", "", "Metrics and their formulas") + ToHtml(MetricFacts(results), ""));
}

Html TimeSection(const Results& results) { return ToHtml(TimeFacts(results), ""); }

Html MachineSection(const Results& results) {
  return ToHtml(CounterFacts(results), "h3") + ToHtml(HygieneFacts(results), "h3") +
         ToHtml(MachineFacts(results), "h3") +
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
         Tag("details", Tag("summary", "", "The sweep's whole definition") +
                            Tag("pre", "", ToJson(results.definition).Dump(2)));
}

}  // namespace pinion::harness
