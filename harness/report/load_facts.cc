// Measurement of each load: begin and end of its window, and the cost of the generator.

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "harness/report/facts.h"
#include "harness/report/words.h"
#include "harness/results/figures.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

// " on CPUs that neither ...": of all trials, or of how many.
std::string PlaceText(const MeasuredLoads& loads) {
  constexpr const char* kApart = "on CPUs that neither engine nor front end use,";
  if (loads.trials == 0) return ",";
  if (loads.apart == loads.trials) return StrCat(" ", kApart);
  if (loads.apart == 0) return " on the server's CPUs,";
  return StrCat(", in ", loads.apart, " of ", loads.trials, " trials ", kApart);
}

// How much of a core the generator took in the worst trial; "" if no trial has ended.
std::string GeneratorText(const Results& results) {
  double most = -1;
  for (const Candidate& candidate : results.candidates)
    if (const Series* series = candidate.Find("generator_cpu_share", 0))
      for (const Sample& sample : series->samples) most = std::max(most, sample.value);
  if (most < 0) return "";
  return StrCat("The load generator, a process of its own", PlaceText(results.loads),
                " took at most ", Percent(most), " of a core.");
}

std::string Seconds(const std::optional<double>& seconds) {
  return seconds ? FormatFigure("s", *seconds) : "-";
}

}  // namespace

TextTable LoadFacts(const Results& results) {
  const MeasuredLoads& loads = results.loads;
  std::vector<std::string> notes = {GeneratorText(results)};
  if (notes.front().empty()) notes = {"No trial has ended yet."};
  if (loads.warm_up_s)
    notes.push_back(StrCat("Warm-ups took ", Seconds(loads.warm_up_s), " of a trial."));
  if (!loads.each.empty())
    notes.emplace_back(
        "Medians over the trials; a load ends after all of its requests, or when its time is "
        "over.");
  TextTable table{"Measured part of each load", Join(notes, " "), {}, {}};
  if (loads.each.empty()) return table;
  table.head = {"load",          "measured from",        "for", "requests counted", "trials",
                "ended by time", "without a steady part"};
  for (const MeasuredLoad& load : loads.each)
    table.rows.push_back({{LevelText(load.level), Seconds(load.start_s), Seconds(load.length_s),
                           StrCat(std::lround(load.requests)), StrCat(load.trials),
                           load.by_time ? StrCat(*load.by_time) : "-", StrCat(load.whole)}});
  return table;
}

}  // namespace pinion::harness
