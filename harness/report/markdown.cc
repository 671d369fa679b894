#include "harness/report/markdown.h"

#include <map>
#include <vector>

#include "engine/base/strings.h"
#include "harness/report/charts.h"
#include "harness/report/recommend.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

// A text inside a table cell or a paragraph: what Markdown would read as markup is escaped.
std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("\\`*_[]<>|#").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c == '\n' || c == '\r' ? ' ' : c;
  }
  return escaped;
}

std::string CodeBlock(const std::string& text) { return "```sh\n" + text + "\n```\n\n"; }

std::string VerdictText(const Results& results, const Verdict& verdict, const std::string& folder) {
  const Words words = InWords(results, verdict);
  std::string text = StrCat("## ", verdict.objective, "\n\n**", Escape(words.headline), "**",
                            words.gain.empty() ? "" : ": " + Escape(words.gain), "  \n");
  if (!words.confidence.empty()) text += Escape(words.confidence) + "; ";
  text += Escape(words.floor) + ".\n\n";
  if (!words.tied.empty()) text += Escape(words.tied) + ".\n\n";
  const LaunchCommands launch = LaunchCommandsOf(results, verdict, folder);
  const std::string command = launch.pinion + launch.other;  // one of them
  return command.empty() ? text : text + CodeBlock(command);
}

// Once per recommended candidate: several objectives often agree.
std::string VllmText(const Results& results, const std::string& folder) {
  std::map<std::string, std::vector<std::string>> objectives;  // by command
  for (const Verdict& verdict : results.verdicts)
    if (const std::string command = LaunchCommandsOf(results, verdict, folder).vllm;
        !command.empty())
      objectives[command].push_back(verdict.objective);
  std::string text = objectives.empty() ? "" : "## The same with vLLM's CPU backend\n\n";
  for (const auto& [command, names] : objectives)
    text += Join(names, ", ") + ":\n\n" + CodeBlock(command);
  return text;
}

// Every chart's conclusion, with its picture where there is one.
std::string ChartsText(const Results& results,
                       const Result<std::map<std::string, std::string>>& pictures) {
  const std::vector<Chart> charts = ChartsOf(results);
  if (charts.empty()) return "";
  std::string text = "## What was seen\n\n";
  for (const Chart& chart : charts) {
    text += StrCat("**", Escape(chart.title), ".** ", Escape(chart.conclusion), "\n\n");
    if (pictures && pictures->count(chart.name))
      text += StrCat("![", chart.title, "](charts/", chart.name, ".svg)\n\n");
  }
  if (!pictures) text += StrCat("Pictures are left out: ", pictures.error().message, ".\n\n");
  return text;
}

std::string Cell(const Candidate& candidate, const char* metric, int concurrency) {
  const Series* series = candidate.Find(metric, concurrency);
  if (!series || series->estimate.n == 0) return "-";
  return FormatFigure(FindMetric(metric)->unit, series->estimate.median);
}

std::string RatioText(const Candidate& candidate, Objective objective) {
  if (candidate.is_anchor) return "default";
  const Comparison* comparison = candidate.Find(objective);
  if (!comparison || comparison->ratio.n == 0) return "-";
  return StrCat(FormatChange(comparison->ratio.median), " (",
                FormatChangeInterval(comparison->ratio), ")");
}

std::string CandidateRow(const Results& results, const Candidate& candidate) {
  std::string row = StrCat("| ", Escape(SettingsText(candidate)), " | ", Name(candidate.status),
                           " | ", Cell(candidate, "output_tokens_per_s", 0), " | ",
                           Cell(candidate, "ttft_s", 1), " | ", Cell(candidate, "tpot_s", 1), " |");
  for (const Objective objective : results.definition.objectives)
    row += StrCat(" ", RatioText(candidate, objective), " |");
  return row + " " + Escape(candidate.reason) + " |\n";
}

std::string CandidateTable(const Results& results) {
  std::string head = "| configuration | status | batch output | first token | per token |";
  std::string rule = "|---|---|---:|---:|---:|";
  for (const Objective objective : results.definition.objectives) {
    head += StrCat(" ", Name(objective), " |");
    rule += "---:|";
  }
  std::string table = head + " why |\n" + rule + "---|\n";
  for (const Candidate& candidate : results.candidates) table += CandidateRow(results, candidate);
  return table + "\n";
}

}  // namespace

std::string ReportMarkdown(const Results& results, const std::string& folder,
                           const Result<std::map<std::string, std::string>>& pictures) {
  std::string text = StrCat("# ", Escape(results.model), "\n\n", Escape(Answer(results)), "\n\n",
                            Escape(MachineLine(results.machine)), "; ",
                            Counted(static_cast<size_t>(results.rounds_done), "round"), "; ",
                            results.started_at, "\n\n");
  if (!results.finished) text += "Not finished: this is what is known so far.\n\n";
  for (const std::string& warning : results.warnings) text += "- " + Escape(warning) + "\n";
  if (!results.warnings.empty()) text += "\n";
  for (const Verdict& verdict : results.verdicts) text += VerdictText(results, verdict, folder);
  text += VllmText(results, folder) + ChartsText(results, pictures) + "## All configurations\n\n" +
          CandidateTable(results) + "## Metrics\n\n";
  for (const MetricInfo& metric : Metrics())
    text += StrCat("- `", metric.name, "` [", metric.unit, "]: ", Escape(metric.formula), "\n");
  return text + "\n## Again\n\n" + CodeBlock(results.command_line);
}

}  // namespace pinion::harness
