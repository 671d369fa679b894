// The tables of report.html: configurations with their results, and those that were not measured to
// the end, with the reason.

#include <algorithm>
#include <vector>

#include "engine/base/strings.h"
#include "harness/report/charts.h"
#include "harness/report/frontier.h"
#include "harness/report/page.h"
#include "harness/report/ratio_drawing.h"
#include "harness/report/words.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

// How far the drawings of one objective reach to either side, so that all rows share one scale.
double Reach(const Results& results, Objective objective) {
  double largest = 0;
  for (const Candidate& candidate : results.candidates)
    if (const Comparison* comparison = candidate.Find(objective);
        comparison && comparison->ratio.n > 0)
      largest = std::max(largest, DistanceFromOne(comparison->ratio));
  return FittingReach(largest);
}

// The value of data-sort: a plain number, which the page's script compares as such.
std::string SortKey(double value) { return Printf("%.6g", value); }

Html RatioCell(const Candidate& candidate, Objective objective, double floor, double reach) {
  const std::string sort = SortKey(candidate.Ratio(objective));
  const auto cell = [&](const Html& content, const char* classes) {
    return Element("td", {{"class", classes}, {"data-sort", sort}}, content);
  };
  if (candidate.is_baseline) return cell(Text("default"), "ratio faint");
  const Comparison* comparison = candidate.Find(objective);
  if (!comparison || comparison->ratio.n == 0) return cell(Text("-"), "ratio faint");
  return cell(DrawRatio(comparison->ratio, floor, reach) +
                  Tag("span", "number", FormatChange(comparison->ratio)) +
                  Tag("span", "small faint", FormatChangeInterval(comparison->ratio)),
              "ratio");
}

Html FigureCell(const Candidate& candidate, const char* metric, int concurrency) {
  const Series* series = candidate.Find(metric, concurrency);
  if (!series) return Tag("td", "number faint", "-");
  const char* unit = FindMetric(metric)->unit;
  Html cell = Text(FormatFigure(unit, series->estimate.median));
  if (const auto& interval = series->estimate.interval)
    cell += Tag("span", "small faint", FormatRange(unit, interval->low, interval->high));
  return Element("td", {{"class", "number"}, {"data-sort", SortKey(series->estimate.median)}},
                 cell);
}

// "for throughput", "for latency", or "recommended" if all objectives agree.
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

Html NameCell(const Results& results, const std::vector<FrontPoint>& front,
              const Candidate& candidate) {
  Html cell = Tag("span", "name", SettingsText(candidate)) + Tags(results, candidate);
  std::vector<std::string> notes;
  if (candidate.status == CandidateStatus::kDropped)
    notes.push_back("dropped: " + candidate.reason);
  if (std::string text = FrontText(front, candidate); !text.empty())
    notes.push_back(std::move(text));
  if (!candidate.same_as.empty()) notes.push_back("also: " + Join(candidate.same_as, "; "));
  if (const size_t signs = candidate.suspect_reasons.size(); signs > 0)
    notes.push_back(StrCat("disturbed: ", candidate.suspect_reasons.front(),
                           signs > 1 ? StrCat(", and ", signs - 1, " more") : ""));
  for (const std::string& note : notes) cell += Tag("span", "small faint", note);
  return Tag("td", cell);
}

// The figures that the table shows of each candidate, one a column.
struct Column {
  const char *title, *metric;
  int concurrency;
};
constexpr Column kColumns[] = {{"batch output", "output_tokens_per_s", 0},
                               {"first token", "ttft_s", 1},
                               {"per token", "tpot_s", 1},
                               {"peak memory", "peak_rss_bytes", 0}};

Html HeaderRow(const Results& results) {
  Html row = HeadCell("", "configuration") + HeadCell("number", "threads");
  for (const Column& column : kColumns) row += HeadCell("number", column.title);
  for (const Objective objective : results.definition.objectives)
    row += HeadCell("ratio", Name(objective));
  return Tag("thead", Tag("tr", row));
}

}  // namespace

Html CandidateTable(const Results& results) {
  std::vector<const Candidate*> measured;
  for (const Candidate& candidate : results.candidates)
    if (!candidate.series.empty()) measured.push_back(&candidate);
  if (measured.empty()) return Tag("p", "", "No configuration has been measured yet.");
  const Objective ranking = RankingObjective(results);
  std::stable_sort(measured.begin(), measured.end(), [&](const auto* a, const auto* b) {
    return a->Ratio(ranking) > b->Ratio(ranking);
  });
  struct Scale {
    Objective objective;
    double floor, reach;
  };
  std::vector<Scale> scales;
  for (const Objective objective : results.definition.objectives)
    scales.push_back({objective, results.FloorOf(objective), Reach(results, objective)});
  const std::vector<FrontPoint> front = FrontOf(results);
  Html rows;
  for (const Candidate* candidate : measured) {
    const std::string threads = candidate->threads ? StrCat(candidate->threads) : "-";
    Html row = NameCell(results, front, *candidate) +
               Element("td", {{"class", "number"}, {"data-sort", threads}}, Text(threads));
    for (const Column& column : kColumns)
      row += FigureCell(*candidate, column.metric, column.concurrency);
    for (const Scale& scale : scales)
      row += RatioCell(*candidate, scale.objective, scale.floor, scale.reach);
    rows += Tag("tr", candidate->is_baseline ? "baseline" : "", row);
  }
  return Tag("table", "candidates", HeaderRow(results) + Tag("tbody", rows));
}

Html FailureTable(const Results& results) {
  Html rows;
  for (const Candidate& candidate : results.candidates) {
    const bool out =
        GaveOut(candidate.status) || candidate.status == CandidateStatus::kDisqualified;
    if (!candidate.series.empty() && !out) continue;
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
             Tag("thead", Tag("tr", HeadCell("", "configuration") + HeadCell("", "status") +
                                        HeadCell("", "why"))) +
                 Tag("tbody", rows));
}

}  // namespace pinion::harness
