// The text output of the search for the SLO's boundary.

#include "engine/base/strings.h"
#include "harness/load/slo_report.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

std::string FourDigits(double value) { return Printf("%.4g", value); }

Json LevelJson(const SloLevel& level) {
  return Json::Object{{"load", level.load},
                      {"runs", level.runs},
                      {"good", static_cast<int64_t>(level.good)},
                      {"total", static_cast<int64_t>(level.total)},
                      {"share", level.share},
                      {"low", level.interval.low},
                      {"high", level.interval.high},
                      {"fitted", level.fitted},
                      {"passes", level.passes}};
}

std::string Verdict(const SloReport& report) {
  const SloBoundary& found = report.boundary;
  const std::string unit = report.options.whole ? " clients" : " requests/s";
  const auto at = [&](const std::optional<size_t>& index) {
    const SloLevel& level = found.levels[*index];
    return StrCat(FourDigits(level.load), unit, " (", Percent(level.share), " good, ",
                  Percent(level.interval.low), " to ", Percent(level.interval.high), ")");
  };
  std::string text;
  if (found.pass) text += "highest that passes  " + at(found.pass) + "\n";
  if (found.fail) text += "lowest that fails    " + at(found.fail) + "\n";
  if (!found.fail) text += "no load failed: raise --find-high to look further\n";
  if (!found.pass) text += "no load passed: lower --find-low, or loosen the SLO\n";
  if (found.is_cliff)
    text += "this is a cliff: the share of good requests drops at once, not gradually\n";
  if (!found.is_settled)
    text += StrCat("not settled after ", found.runs, " runs: raise --max-runs\n");
  return text;
}

}  // namespace

Json ToJson(const SloReport& report) {
  const SloBoundary& found = report.boundary;
  Json levels = Json::MakeArray();
  for (const SloLevel& level : found.levels) levels.Append(LevelJson(level));
  return Json::Object{{"url", report.server.url.text},
                      {"model_id", report.server.style.model},
                      {"unit", report.options.whole ? "clients" : "requests/s"},
                      {"attain", report.options.attain},
                      {"pass", found.pass ? LevelJson(found.levels[*found.pass]) : Json()},
                      {"fail", found.fail ? LevelJson(found.levels[*found.fail]) : Json()},
                      {"is_cliff", found.is_cliff},
                      {"is_settled", found.is_settled},
                      {"runs", found.runs},
                      {"levels", std::move(levels)},
                      {"suspect", Json(report.suspect)}};
}

std::string Render(const SloReport& report) {
  std::string text =
      StrCat(report.server.url.text, ": ", report.server.style.model, "\n",
             DescribeRequests(report.plan, report.server.scale), "\na load passes if ",
             Percent(report.options.attain), " of the requests are good\n\n");
  text += report.options.whole ? "   clients" : "requests/s";
  text += "   good       of   share    95 % interval     runs\n";
  for (const SloLevel& level : report.boundary.levels)
    text +=
        StrCat(Right(FourDigits(level.load), 10), Right(StrCat(level.good), 7),
               Right(StrCat(level.total), 9), Right(Percent(level.share), 9),
               Right(StrCat(Percent(level.interval.low), " to ", Percent(level.interval.high)), 19),
               Right(StrCat(level.runs), 6), level.passes ? "  passes" : "  fails", "\n");
  text += "\n" + Verdict(report);
  for (const std::string& reason : report.suspect) text += "disturbed: " + reason + "\n";
  return text;
}

}  // namespace pinion::harness
