#include "engine/base/strings.h"
#include "harness/stats/text.h"
#include "harness/sweep/replay.h"

namespace pinion::harness {
namespace {

Json ToJson(const ReplayFigure& figure) {
  return Json::Object{{"mean", figure.mean.mean},
                      {"low", figure.interval.low},
                      {"high", figure.interval.high},
                      {"replays", static_cast<int64_t>(figure.mean.n)},
                      {"effective_replays", figure.effective_replays}};
}

Json ToJson(const SeriesUse& use) {
  return Json::Object{{"rows", static_cast<int64_t>(use.rows)},
                      {"rows_per_sweep", use.rows_per_sweep},
                      {"stretches", use.stretches}};
}

std::string RenderFigures(const SeriesFigures& series) {
  std::string text = StrCat(series.use.rows, " rows, a sweep takes about ",
                            Printf("%.0f", series.use.rows_per_sweep), " of them: about ",
                            Printf("%.0f", series.use.stretches),
                            " independent stretches; 95 % intervals by blocks of that length\n");
  for (const ReplayFigure& one : series.figures)
    text += "  " + Left(one.title, 38) + " " + Right(Percent(one.mean.mean), 8) + "  (" +
            Percent(one.interval.low) + " to " + Percent(one.interval.high) + ")\n";
  return text;
}

}  // namespace

Json ToJson(const ReplayReport& report) {
  Json winners = Json::MakeObject();
  for (const auto& [name, count] : report.winners) winners.Set(name, count);
  winners.Set("none", report.none);
  Json json;
  json.Set("seeds", report.seeds);
  json.Set("winners", std::move(winners));
  json.Set("undecided", report.undecided);
  json.Set("default_best", report.default_best);
  json.Set("unspent", report.unspent);
  json.Set("interval_coverage",
           report.interval_coverage ? Json(*report.interval_coverage) : Json());
  json.Set("regret_p95", report.regret_p95);
  json.Set("cost_fraction_p50", report.cost_fraction_p50);
  json.Set("budget_overrun_p95", report.budget_overrun_p95);
  json.Set("floor_p50", report.floor_p50);
  json.Set("default", report.default_name);
  json.Set("series", report.by_blocks ? ToJson(report.by_blocks->use) : Json());
  Json figures = Json::MakeObject();
  if (report.by_blocks)
    for (const ReplayFigure& one : report.by_blocks->figures) figures.Set(one.name, ToJson(one));
  json.Set("figures", std::move(figures));
  return json;
}

std::string Render(const ReplayReport& report) {
  std::string text = StrCat(report.seeds, " replays; the default is ", report.default_name, "\n");
  const auto line = [&](const std::string& name, const std::string& value) {
    text += "  " + Left(name, 38) + " " + value + "\n";
  };
  for (const auto& [name, count] : report.winners)
    if (count > 0) line("recommended " + name, StrCat(count));
  line("none recommended", StrCat(report.none));
  if (report.default_best > 0)
    line("of those, called the default best", StrCat(report.default_best));
  if (report.undecided > 0) line("of those without a verdict", StrCat(report.undecided));
  line("intervals that hold the truth",
       report.interval_coverage ? Percent(*report.interval_coverage) : "nothing was confirmed");
  line("regret of the recommendation, 95th percentile", Percent(report.regret_p95));
  line("cost, median, of 20 whole rounds", Percent(report.cost_fraction_p50));
  line("over budget, 95th percentile", Percent(report.budget_overrun_p95));
  line("floor, median", Percent(report.floor_p50));
  if (report.by_blocks) text += RenderFigures(*report.by_blocks);
  return text;
}

}  // namespace pinion::harness
