// The tables of report.html: who was measured with what result, and who was not and why.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "engine/base/strings.h"
#include "harness/report/page.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

bool WasMeasured(const Candidate& candidate) {
  return std::any_of(candidate.series.begin(), candidate.series.end(),
                     [](const Series& series) { return series.estimate.n > 0; });
}

// By the last objective (balanced, where there are all three), best first; the default is 1.
double Rank(const Results& results, const Candidate& candidate) {
  if (candidate.is_anchor || results.definition.objectives.empty()) return 1;
  const Comparison* comparison = candidate.Find(results.definition.objectives.back());
  return comparison && comparison->ratio.n > 0 ? comparison->ratio.median : 0;
}

// How far the drawn intervals reach, as a fraction: as far as the data, but neither so little that
// noise looks large nor so much that one slow candidate squeezes all others flat.
double Reach(const Results& results, Objective objective) {
  double reach = 0;
  for (const Candidate& candidate : results.candidates) {
    const Comparison* comparison = candidate.Find(objective);
    if (!comparison || comparison->ratio.n == 0) continue;
    reach = std::max(reach, std::abs(comparison->ratio.median - 1));
    if (comparison->ratio.interval)
      reach = std::max(reach, std::abs(comparison->ratio.interval->high - 1));
  }
  return std::clamp(reach, 0.05, 0.5);
}

// A ratio with its interval on a line whose middle is the default; the band is the floor.
Html DrawRatio(const Estimate& ratio, double floor, double reach) {
  constexpr double kWidth = 112, kHeight = 14, kMiddle = kHeight / 2;
  const auto x = [&](double value) {
    return (std::clamp((value - 1) / reach, -1.0, 1.0) + 1) / 2 * (kWidth - 8) + 4;
  };
  char svg[640];
  const double low = x(ratio.interval ? ratio.interval->low : ratio.median);
  const double high = x(ratio.interval ? ratio.interval->high : ratio.median);
  std::snprintf(svg, sizeof svg,
                "<svg class=\"ratio\" width=\"%.0f\" height=\"%.0f\" aria-hidden=\"true\">"
                "<rect class=\"floor\" x=\"%.1f\" y=\"0\" width=\"%.1f\" height=\"%.0f\"/>"
                "<line class=\"zero\" x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%.0f\"/>"
                "<line class=\"interval\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\"/>"
                "<circle cx=\"%.1f\" cy=\"%.0f\" r=\"3\"/></svg>",
                kWidth, kHeight, x(1 - floor), x(1 + floor) - x(1 - floor), kHeight, x(1), x(1),
                kHeight, low, high, kMiddle, kMiddle, x(ratio.median), kMiddle);
  return Drawing(svg);
}

Html RatioCell(const Results& results, const Candidate& candidate, Objective objective) {
  if (candidate.is_anchor) return Tag("td", "ratio faint", "default");
  const Comparison* comparison = candidate.Find(objective);
  if (!comparison || comparison->ratio.n == 0) return Tag("td", "ratio faint", "-");
  const Verdict* verdict = results.FindVerdict(objective);
  const double floor = verdict ? verdict->floor : 0;
  Html cell = DrawRatio(comparison->ratio, floor, Reach(results, objective)) +
              Tag("span", "number", FormatChange(comparison->ratio.median)) +
              Tag("span", "small faint", FormatChangeInterval(comparison->ratio));
  return Tag("td", "ratio", cell);
}

Html FigureCell(const Candidate& candidate, const char* metric, int concurrency) {
  const Series* series = candidate.Find(metric, concurrency);
  if (!series || series->estimate.n == 0) return Tag("td", "number faint", "-");
  const char* unit = FindMetric(metric)->unit;
  Html cell = Text(FormatFigure(unit, series->estimate.median));
  if (const auto& interval = series->estimate.interval)
    cell += Tag("span", "small faint", FormatRange(unit, interval->low, interval->high));
  return Tag("td", "number", cell);
}

// "for throughput", "for latency", or "recommended" where all objectives agree.
Html Tags(const Results& results, const Candidate& candidate) {
  Html tags;
  size_t recommending = 0;
  for (const Verdict& verdict : results.verdicts) {
    if (verdict.recommended != candidate.id || !IsDecided(verdict)) continue;
    tags += Tag("span", "tag", "for " + verdict.objective);
    ++recommending;
  }
  const bool by_all = recommending > 0 && recommending == results.verdicts.size();
  return by_all ? Tag("span", "tag", "recommended") : tags;
}

Html NameCell(const Results& results, const Candidate& candidate) {
  Html cell = Tag("span", "name", SettingsText(candidate)) + Tags(results, candidate);
  std::vector<std::string> notes;
  if (candidate.status == CandidateStatus::kDropped)
    notes.push_back("dropped: " + candidate.reason);
  if (!candidate.same_as.empty()) notes.push_back("also: " + Join(candidate.same_as, "; "));
  if (!candidate.suspect_reasons.empty())
    notes.push_back(StrCat(candidate.suspect_reasons.size(),
                           " disturbed samples: ", candidate.suspect_reasons.front(),
                           candidate.suspect_reasons.size() > 1 ? ", ..." : ""));
  for (const std::string& note : notes) cell += Tag("span", "small faint", note);
  return Tag("td", cell);
}

Html HeaderRow(const Results& results) {
  Html row = Tag("th", "", "configuration") + Tag("th", "number", "threads") +
             Tag("th", "number", "batch output") + Tag("th", "number", "first token") +
             Tag("th", "number", "per token");
  for (const Objective objective : results.definition.objectives)
    row += Tag("th", "ratio", Name(objective));
  return Tag("thead", Tag("tr", row));
}

}  // namespace

Html CandidateTable(const Results& results) {
  std::vector<const Candidate*> measured;
  for (const Candidate& candidate : results.candidates)
    if (WasMeasured(candidate)) measured.push_back(&candidate);
  if (measured.empty()) return Tag("p", "", "No configuration has been measured yet.");
  std::stable_sort(measured.begin(), measured.end(), [&](const auto* a, const auto* b) {
    return Rank(results, *a) > Rank(results, *b);
  });
  Html rows;
  for (const Candidate* candidate : measured) {
    Html row = NameCell(results, *candidate) +
               Tag("td", "number", candidate->threads ? StrCat(candidate->threads) : "-") +
               FigureCell(*candidate, "output_tokens_per_s", 0) +
               FigureCell(*candidate, "ttft_s", 1) + FigureCell(*candidate, "tpot_s", 1);
    for (const Objective objective : results.definition.objectives)
      row += RatioCell(results, *candidate, objective);
    rows += Tag("tr", candidate->is_anchor ? "anchor" : "", row);
  }
  return Tag("table", "candidates", HeaderRow(results) + Tag("tbody", rows));
}

Html FailureTable(const Results& results) {
  Html rows;
  for (const Candidate& candidate : results.candidates) {
    if (WasMeasured(candidate) && candidate.status != CandidateStatus::kFailed) continue;
    Html why = Text(candidate.reason.empty() ? "no trial has run yet" : candidate.reason);
    if (!candidate.log_tail.empty())
      why += Tag("details", Tag("summary", "", "end of its log (" + candidate.log_path + ")") +
                                Tag("pre", "", candidate.log_tail));
    rows += Tag("tr", Tag("td", Tag("span", "name", SettingsText(candidate))) +
                          Tag("td", "", Name(candidate.status)) + Tag("td", why));
  }
  if (rows.empty()) return rows;
  return Tag("h3", "", "Not measured to the end") +
         Tag("table", "failures",
             Tag("thead", Tag("tr", Tag("th", "", "configuration") + Tag("th", "", "status") +
                                        Tag("th", "", "why"))) +
                 Tag("tbody", rows));
}

}  // namespace pinion::harness
