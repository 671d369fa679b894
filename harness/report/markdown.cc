#include "harness/report/markdown.h"

#include <map>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/artifacts/yaml.h"
#include "harness/report/answer.h"
#include "harness/report/charts.h"
#include "harness/report/facts.h"
#include "harness/report/frontier.h"
#include "harness/report/profile_files.h"
#include "harness/report/recommend.h"
#include "harness/report/text_table.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

std::string CodeBlock(const std::string& text) { return "```sh\n" + text + "\n```\n\n"; }

// Empty if `text` is.
std::string Paragraph(const std::string& text) {
  return text.empty() ? text : EscapeMarkdown(text) + "\n\n";
}

std::string VerdictText(const Results& results, const Verdict& verdict) {
  const Words words = InWords(results, verdict);
  std::string text =
      StrCat("## ", verdict.objective, "\n\n**", EscapeMarkdown(words.headline), "**",
             words.gain.empty() ? "" : ": " + EscapeMarkdown(words.gain), "  \n");
  if (!words.confidence.empty()) text += EscapeMarkdown(words.confidence) + "; ";
  text += EscapeMarkdown(words.floor) + ".\n\n";
  for (const std::string* line : {&words.runner_up, &words.tied})
    if (!line->empty()) text += EscapeMarkdown(*line) + ".\n\n";
  return text;
}

// The files beside the profile, a line each.
std::string FilesText(const std::vector<ProfileFileLine>& lines) {
  std::string text;
  for (const ProfileFileLine& line : lines)
    text += line.path.empty()
                ? StrCat("- ", line.name, ": none, because ", EscapeMarkdown(line.text), "\n")
                : StrCat("- [", EscapeMarkdown(line.name), "](", line.path,
                         "): ", EscapeMarkdown(line.text), "\n");
  return text.empty() ? text : text + "\n";
}

// One command per configuration: several objectives often agree.
std::string LaunchText(const Results& results, const std::string& folder) {
  std::string text;
  for (const LaunchGroup& group : LaunchGroups(results, folder)) {
    const LaunchCommands& launch = group.commands;
    text += StrCat("For ", group.objectives(), ":\n\n",
                   CodeBlock(launch.pinion + launch.other));  // one of them
    if (!launch.vllm.empty())
      text += "The same with vLLM's CPU backend:\n\n" + CodeBlock(launch.vllm) +
              Paragraph(LacksText("vLLM", launch.vllm_lacks));
    if (!launch.llama_cpp.empty())
      text += "The same with llama.cpp:\n\n" + CodeBlock(launch.llama_cpp) +
              Paragraph(LacksText("llama.cpp", launch.llama_cpp_lacks));
    text += FilesText(ProfileFileLines(results, *group.verdicts[0], folder));
  }
  return text.empty() ? text : "## Launch\n\n" + text;
}

// Every chart's conclusion, with its picture if there is one.
std::string ChartsText(const Results& results,
                       const Result<std::map<std::string, std::string>>& pictures) {
  std::string text = "## Results in charts\n\n", absent;
  for (const Chart& chart : AllCharts(results)) {
    if (!chart.absent.empty()) {
      absent +=
          StrCat("- ", EscapeMarkdown(chart.title), ": ", EscapeMarkdown(chart.absent), ".\n");
      continue;
    }
    text +=
        StrCat("**", EscapeMarkdown(chart.title), ".** ", EscapeMarkdown(chart.conclusion), "\n\n");
    if (pictures && pictures->count(chart.name))
      text += StrCat("![", chart.title, "](charts/", chart.name, ".svg)\n\n");
  }
  if (!absent.empty()) text += "Charts without data:\n\n" + absent + "\n";
  if (!pictures) text += StrCat("Pictures are left out: ", pictures.error().message, ".\n\n");
  return text;
}

std::string Cell(const Candidate& candidate, const char* metric, int concurrency) {
  const Series* series = candidate.Find(metric, concurrency);
  if (!series) return "-";
  return FormatFigure(FindMetric(metric)->unit, series->estimate.median);
}

std::string RatioText(const Candidate& candidate, Objective objective) {
  if (candidate.is_baseline) return "default";
  const Comparison* comparison = candidate.Find(objective);
  if (!comparison || comparison->ratio.n == 0) return "-";
  return StrCat(FormatChange(comparison->ratio), " (", FormatChangeInterval(comparison->ratio),
                ")");
}

std::string CandidateRow(const Results& results, const std::vector<FrontPoint>& front,
                         const Candidate& candidate) {
  std::string row =
      StrCat("| ", EscapeMarkdown(SettingsText(candidate)), " | ", Name(candidate.status), " | ",
             Cell(candidate, "output_tokens_per_s", 0), " | ", Cell(candidate, "ttft_s", 1), " | ",
             Cell(candidate, "tpot_s", 1), " |");
  for (const Objective objective : results.definition.objectives)
    row += StrCat(" ", RatioText(candidate, objective), " |");
  const std::string place = FrontText(front, candidate);
  return StrCat(row, " ", place.empty() ? "-" : place, " | ", EscapeMarkdown(candidate.reason),
                " |\n");
}

std::string CandidateRows(const Results& results) {
  std::string head = "| configuration | status | batch output | first token | per token |";
  std::string rule = "|---|---|---:|---:|---:|";
  for (const Objective objective : results.definition.objectives) {
    head += StrCat(" ", Name(objective), " |");
    rule += "---:|";
  }
  std::string table = head + " Pareto front | reason |\n" + rule + "---|---|\n";
  const std::vector<FrontPoint> front = FrontOf(results);
  for (const Candidate& candidate : results.candidates)
    table += CandidateRow(results, front, candidate);
  return table + "\n";
}

// The last log lines of failed candidates, indented: code that no text inside it can end.
std::string LogsText(const Results& results) {
  std::string text;
  for (const Candidate& candidate : results.candidates)
    if (!candidate.log_tail.empty())
      text += StrCat("### The end of ", EscapeMarkdown(candidate.log_path), ": ",
                     EscapeMarkdown(SettingsText(candidate)), "\n\n",
                     Indented(candidate.log_tail, "    "), "\n");
  return text;
}

}  // namespace

std::string ReportMarkdown(const Results& results, const std::string& folder,
                           const Result<std::map<std::string, std::string>>& pictures) {
  std::string text = StrCat(
      "# ", EscapeMarkdown(results.model), "\n\n", EscapeMarkdown(Answer(results)), "\n\n",
      Paragraph(Support(results)), EscapeMarkdown(MachineLine(results)), "; ",
      Counted(static_cast<size_t>(results.rounds_done), "round"), "; ", results.started_at, "\n\n");
  if (!results.finished)
    text += "Not finished: these are the results so far; --resume continues the sweep.\n\n";
  for (const std::string& warning : results.warnings) text += "- " + EscapeMarkdown(warning) + "\n";
  if (!results.warnings.empty()) text += "\n";
  for (const Verdict& verdict : results.verdicts) text += VerdictText(results, verdict);
  text += LaunchText(results, folder) + ChartsText(results, pictures) +
          "## All configurations\n\n" + CandidateRows(results) + LogsText(results) +
          ToMarkdown(EffectFacts(results));
  for (const auto facts : {WordFacts, MetricFacts, LoadFacts, TimeFacts, CounterFacts, HygieneFacts,
                           MachineFacts, EnvironmentFacts})
    text += ToMarkdown(facts(results));
  return text + "## Reproduce\n\n" + CodeBlock(results.command_line);
}

}  // namespace pinion::harness
