#include "harness/report/charts.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

// "default", "recommended" or "other": how a chart marks a candidate. What is recommended and the
// default is the default.
std::string RoleOf(const Results& results, const Candidate& candidate) {
  if (candidate.is_anchor) return "default";
  for (const Verdict& verdict : results.verdicts)
    if (verdict.recommended == candidate.id) return "recommended";
  return "other";
}

bool Measured(const Series* series) { return series && series->estimate.n > 0; }

std::string BindingOf(const Candidate& candidate) {
  const Json* bind = candidate.options.Find("threads_bind");
  return bind && bind->is_string() ? bind->string() : "auto";
}

Json HeatCell(const std::string& binding, int threads, const Candidate& best, double ratio) {
  Json cell;
  cell.Set("binding", binding);
  cell.Set("threads", threads);
  cell.Set("percent", (ratio - 1) * 100);
  cell.Set("text", best.is_anchor ? "defaults" : FormatChange(ratio));
  cell.Set("configuration", SettingsText(best));
  return cell;
}

}  // namespace

Result<PageParts> ReadPageParts(const std::string& folder) {
  PageParts parts;
  PINION_ASSIGN(parts.page, ReadFile(folder + "/template.html"));
  for (const char* library : {"vega", "vega-lite", "vega-embed"}) {
    PINION_ASSIGN(const std::string script, ReadFile(folder + "/" + library + ".min.js"));
    if (script.find("</script") != std::string::npos)
      return Fail(ErrorCode::kUnsupported,
                  StrCat(folder, "/", library, ".min.js holds '</script', which would end the ",
                         "page's script; use the version in reports/package-lock.json"));
    parts.scripts += script + "\n";
  }
  PINION_ASSIGN(parts.licence, ReadFile(folder + "/LICENSE"));
  PINION_ASSIGN(parts.scatter, Json::ParseFile(folder + "/scatter.vl.json"));
  PINION_ASSIGN(parts.heatmap, Json::ParseFile(folder + "/heatmap.vl.json"));
  return parts;
}

Result<std::string> FindPageParts() {
  const auto here = std::filesystem::path(SelfPath()).parent_path();
  std::vector<std::string> looked;
  for (const auto& place : {here / "reports", here.parent_path() / "share/pinion/reports"}) {
    std::error_code ignored;
    if (std::filesystem::exists(place / "vega.min.js", ignored)) return place.string();
    looked.push_back(place.string());
  }
  return Fail(ErrorCode::kNotFound,
              StrCat("report.html needs its template and chart libraries, which are in neither ",
                     Join(looked, " nor "), "; scripts/build makes them"));
}

Json ScatterPoints(const Results& results) {
  Json points = Json::MakeArray();
  for (const Candidate& candidate : results.candidates) {
    for (const int concurrency : results.definition.workload.concurrency) {
      const Series* latency = candidate.Find("e2el_s", concurrency);
      const Series* throughput = candidate.Find("output_tokens_per_s", concurrency);
      if (!Measured(latency) || !Measured(throughput)) continue;
      Json point;
      point.Set("configuration", SettingsText(candidate));
      point.Set("role", RoleOf(results, candidate));
      point.Set("concurrency", concurrency);
      point.Set("clients", StrCat(concurrency, concurrency == 1 ? " client" : " clients"));
      point.Set("latency_s", latency->estimate.median);
      point.Set("tokens_per_s", throughput->estimate.median);
      points.Append(std::move(point));
    }
  }
  return points;
}

Json HeatCells(const Results& results) {
  std::map<std::pair<std::string, int>, std::pair<const Candidate*, double>> best;
  for (const Candidate& candidate : results.candidates) {
    const Comparison* comparison = candidate.Find(Objective::kThroughput);
    const Series* measured = candidate.Find("output_tokens_per_s", 0);
    const bool compared = comparison && comparison->ratio.n > 0;
    if (!Measured(measured) || (!compared && !candidate.is_anchor)) continue;
    const double ratio = candidate.is_anchor ? 1.0 : comparison->ratio.median;
    auto& cell = best[{BindingOf(candidate), candidate.threads}];
    if (!cell.first || ratio > cell.second) cell = {&candidate, ratio};
  }
  Json cells = Json::MakeArray();
  for (const auto& [key, value] : best)
    cells.Append(HeatCell(key.first, key.second, *value.first, value.second));
  return cells;
}

}  // namespace pinion::harness
