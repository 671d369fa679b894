#include "engine/base/strings.h"
#include "harness/report/export.h"
#include "harness/report/frontier.h"
#include "harness/space/own_settings.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

// RFC 4180. A leading quote keeps spreadsheets from running text as a formula.
std::string CsvField(std::string text) {
  if (!text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos)
    text.insert(0, "'");
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string Number(double value) { return Printf("%.9g", value); }

// "-fa=on env.NAME=value": settings that only this candidate's engine has.
std::string OwnSettings(const Candidate& candidate) {
  std::vector<Setting> own;
  for (const Setting& setting : candidate.settings)
    if (IsOwnKey(setting.key)) own.push_back(setting);
  return own.empty() ? "" : Label(own);
}

// The columns that identify a row's candidate.
std::vector<std::string> CandidateFields(const Candidate& candidate) {
  std::vector<std::string> fields = {StrCat(candidate.id), CsvField(candidate.label),
                                     CsvField(candidate.engine), Name(candidate.status),
                                     CsvField(candidate.reason)};
  for (const SettingRow& row : SettingRows())
    fields.push_back(CsvField(SettingText(row.get(candidate.configuration))));
  fields.push_back(CsvField(OwnSettings(candidate)));
  fields.push_back(StrCat(candidate.threads));
  return fields;
}

// Of the two series that make a point of the front, its place; empty for all others.
std::string FrontField(const std::vector<FrontPoint>& front, const Series& series) {
  for (const FrontPoint& point : front)
    if (point.latency == &series || point.throughput == &series) return Name(point.front);
  return "";
}

std::vector<std::string> SeriesFields(const Series& series, const std::vector<FrontPoint>& front) {
  const MetricInfo* metric = FindMetric(series.metric);
  const auto& [n, median, mad, interval] = series.estimate;
  return {CsvField(series.metric),
          metric ? metric->unit : "",
          StrCat(series.level.clients),
          series.level.is_open() ? Number(series.level.rate) : "",
          StrCat(n),
          n ? Number(median) : "",
          interval ? Number(interval->low) : "",
          interval ? Number(interval->high) : "",
          interval ? Number(interval->coverage) : "",
          FrontField(front, series)};
}

}  // namespace

std::string ResultsCsv(const Results& results) {
  std::string csv = "candidate,label,engine,status,reason,";
  for (const SettingRow& row : SettingRows()) csv += row.key + ",";
  csv += "own_settings,threads,metric,unit,concurrency,rate,n,median,low,high,coverage,front\r\n";
  const std::vector<FrontPoint> front = FrontOf(results);
  for (const Candidate& candidate : results.candidates) {
    const std::string start = Join(CandidateFields(candidate), ",");
    for (const Series& series : candidate.series)
      csv += start + "," + Join(SeriesFields(series, front), ",") + "\r\n";
    if (candidate.series.empty()) csv += start + ",,,,,,,,,,\r\n";
  }
  return csv;
}

}  // namespace pinion::harness
