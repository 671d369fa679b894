#include "harness/report/page.h"

#include <map>

#include "engine/base/strings.h"
#include "harness/report/recommend.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

// "8 candidates, 6 rounds, 8 min 20 s": how much the verdict rests on.
std::string Effort(const Results& results) {
  size_t measured = 0;
  for (const Candidate& candidate : results.candidates) measured += !candidate.series.empty();
  std::string text =
      StrCat(measured, " of ", results.candidates.size(), " configurations measured, ",
             Counted(static_cast<size_t>(results.rounds_done), "round"));
  if (results.confirmation_rounds > 0)
    text += StrCat(" and ", results.confirmation_rounds, " to confirm");
  return StrCat(text, ", ", FormatSeconds(results.elapsed_s), ", ",
                results.started_at.substr(0, std::string("2026-01-01").size()));
}

Html Notices(const Results& results) {
  Html notices;
  if (!results.finished)
    notices += Tag("p", "notice",
                   StrCat("Not finished: ", results.rounds_done, " of ", results.rounds_planned,
                          " rounds are done. What follows is what is known so far; the same "
                          "`pinion sweep` with --resume goes on."));
  for (const std::string& warning : results.warnings) notices += Tag("p", "notice", warning);
  return notices;
}

// "727 tokens/s", the interval below it, and what the defaults gave.
Html FigureRow(const Figure& figure, const Candidate* anchor) {
  const Estimate& estimate = figure.series->estimate;
  const std::string unit = figure.metric->unit;
  Html value = Tag("b", "", FormatFigure(unit, estimate.median));
  if (estimate.interval)
    value += Tag("span", "small faint",
                 FormatRange(unit, estimate.interval->low, estimate.interval->high));
  if (const Series* before =
          anchor ? anchor->Find(figure.series->metric, figure.series->concurrency) : nullptr;
      before && before->estimate.n > 0)
    value += Tag("span", "small faint", "defaults: " + FormatFigure(unit, before->estimate.median));
  return Tag("dt", "", figure.name) + Tag("dd", value);
}

Html Figures(const Results& results, const Verdict& verdict, Objective objective) {
  const Candidate* candidate = results.Find(verdict.recommended);
  if (!candidate) return {};
  const Candidate* anchor = candidate->is_anchor ? nullptr : &results.candidates.front();
  Html list;
  for (const Figure& figure : FiguresOf(*candidate, objective)) list += FigureRow(figure, anchor);
  return Tag("dl", list);
}

Html Card(const Results& results, const Verdict& verdict, Objective objective) {
  const Words words = InWords(results, verdict);
  const bool won = verdict.outcome == Outcome::kWinner;
  Html card = Tag("h2", "", verdict.objective) + Tag("p", "goal", Goal(objective)) +
              Tag("p", won ? "change won" : "change",
                  won ? FormatChange(verdict.ratio.median) : std::string("defaults")) +
              Tag("p", "headline", words.headline) + Figures(results, verdict, objective);
  const std::string evidence = words.confidence.empty() ? "" : words.confidence + "; ";
  card += Tag("p", "faint", evidence + words.floor + ".");
  if (!words.tied.empty()) card += Tag("p", "faint", words.tied + ".");
  return Tag("article", "card", card);
}

}  // namespace

Html VerdictCards(const Results& results) {
  Html cards;
  for (const Objective objective : results.definition.objectives)
    if (const Verdict* verdict = results.FindVerdict(objective))
      cards += Card(results, *verdict, objective);
  return cards;
}

Html LaunchSection(const Results& results, const std::string& folder) {
  Html commands, vllm;
  std::map<int, std::string> shown;  // candidate -> the objective under which it was shown
  for (const Verdict& verdict : results.verdicts) {
    const LaunchCommands launch = LaunchCommandsOf(results, verdict, folder);
    if (launch.pinion.empty()) continue;
    commands += Tag(
        "tr", Tag("th", "", verdict.objective) + Tag("td", Tag("code", "command", launch.pinion)));
    const auto [first, is_new] = shown.emplace(verdict.recommended, verdict.objective);
    Html cell = is_new ? Tag("pre", "command", launch.vllm)
                       : Tag("span", "faint", "the same as for " + first->second);
    if (is_new && !launch.vllm_lacks.empty())
      cell += Tag("p", "faint", "vLLM has no setting for " + launch.vllm_lacks + ".");
    vllm += Tag("tr", Tag("th", "", verdict.objective) + Tag("td", cell));
  }
  if (commands.empty()) return Tag("p", "", "Nothing to launch yet.");
  return Tag("table", "commands", commands) +
         Tag("details", Tag("summary", "", "The same with vLLM's CPU backend") +
                            Tag("table", "commands", vllm));
}

Result<std::string> ReportPage(const Results& results, const std::string& folder,
                               const PageParts& parts) {
  Json data;
  data.Set("points", ScatterPoints(results));
  data.Set("cells", HeatCells(results));
  data.Set("scatter", parts.scatter);
  data.Set("heatmap", parts.heatmap);
  const Html failures = FailureTable(results);
  return FillTemplate(parts.page, {{"title", Text("Pinion: " + results.model).markup()},
                                   {"model", Text(results.model).markup()},
                                   {"answer", Text(Answer(results)).markup()},
                                   {"machine_line", Text(MachineLine(results.machine)).markup()},
                                   {"effort", Text(Effort(results)).markup()},
                                   {"notices", Notices(results).markup()},
                                   {"cards", VerdictCards(results).markup()},
                                   {"launch", LaunchSection(results, folder).markup()},
                                   {"candidates", CandidateTable(results).markup()},
                                   {"failures", failures.markup()},
                                   {"method", MethodSection(results).markup()},
                                   {"machine", MachineSection(results).markup()},
                                   {"reproduce", ReproduceSection(results).markup()},
                                   {"data", ScriptJson(data)},
                                   {"licence", Text(parts.licence).markup()},
                                   {"scripts", parts.scripts}});
}

}  // namespace pinion::harness
