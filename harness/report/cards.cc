// Page one: a card per objective with the recommended configuration, its expected figures and the
// evidence for it.

#include <algorithm>
#include <cctype>

#include "harness/report/page.h"
#include "harness/report/pair_words.h"
#include "harness/report/ratio_drawing.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

// "727 tokens/s", its interval, and the same figure of the defaults.
Html FigureRow(const Figure& figure, const Candidate* baseline) {
  const Estimate& estimate = figure.series->estimate;
  const std::string unit = figure.metric->unit;
  Html value = Tag("b", Prose(FormatFigure(unit, estimate.median)));
  if (estimate.interval)
    value += Tag("span", "small faint",
                 Prose(FormatRange(unit, estimate.interval->low, estimate.interval->high)));
  if (const Series* before =
          baseline ? baseline->Find(figure.series->metric, figure.series->level) : nullptr)
    value += Tag("span", "small faint",
                 Prose("defaults: " + FormatFigure(unit, before->estimate.median)));
  return Tag("dt", "", figure.name) + Tag("dd", value);
}

Html Figures(const Results& results, const Candidate& candidate, Objective objective) {
  const Candidate* baseline = candidate.is_baseline ? nullptr : &results.candidates.front();
  Html list;
  for (const Figure& figure : FiguresOf(candidate, objective)) list += FigureRow(figure, baseline);
  if (const std::string costs = Costs(candidate); !costs.empty())
    list += Tag("dt", "", "costs") + Tag("dd", Prose(costs));
  return Tag("dl", list);
}

// The ratio behind the card, drawn as in the table; empty if nothing was compared.
Html VerdictDrawing(const Verdict& verdict) {
  const bool won = verdict.outcome == Outcome::kWinner;
  const Estimate& ratio = won ? verdict.ratio : verdict.best_ratio;
  const bool compared = won || (IsDecided(verdict) && verdict.best != verdict.recommended);
  if (!compared || ratio.n == 0 || !ratio.interval) return {};
  // Not clipped as in the table: no other row shares its scale.
  const double distance = DistanceFromOne(ratio);
  return DrawRatio(ratio, verdict.floor, std::max(distance, FittingReach(distance)));
}

std::string Capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

// In large letters: the winner's gain, the second side's of a pair, or the settings that are kept.
std::string Change(const Results& results, const Verdict& verdict) {
  const bool decided = IsPair(results) && IsDecided(verdict);
  if (decided || verdict.outcome == Outcome::kWinner) return FormatChange(verdict.best_ratio);
  const bool none = IsPair(results) || verdict.outcome == Outcome::kNoData;
  return none ? "no verdict" : "defaults";
}

Html Card(const Results& results, const Verdict& verdict, Objective objective) {
  const Words words = InWords(results, verdict);
  const bool won = verdict.outcome == Outcome::kWinner;
  // Three parts, aligned across the cards by page.css.
  const Html choice = Tag("h2", "", verdict.objective) + Tag("p", "goal", Goal(objective)) +
                      Tag("p", won ? "change won" : "change", Change(results, verdict)) +
                      VerdictDrawing(verdict) + Tag("p", "headline", Prose(words.headline));
  const Candidate* candidate = results.Find(verdict.recommended);
  const Html figures = candidate ? Figures(results, *candidate, objective) : Html();
  const std::string evidence = words.confidence.empty() ? "" : words.confidence + "; ";
  Html why = Tag("p", Prose(Capitalised(evidence + words.floor) + "."));
  for (const std::string* line : {&words.runner_up, &words.tied})
    if (!line->empty()) why += Tag("p", Prose(*line + "."));
  return Tag("article", "card",
             Tag("div", choice) + Tag("div", figures) + Tag("div", "faint", why));
}

}  // namespace

Html VerdictCards(const Results& results) {
  Html cards;
  bool drawn = false;
  for (const Objective objective : results.definition.objectives)
    if (const Verdict* verdict = results.FindVerdict(objective)) {
      cards += Card(results, *verdict, objective);
      drawn |= !VerdictDrawing(*verdict).empty();
    }
  if (drawn)
    cards += Tag("p", "legend",
                 "Each drawing compares the recommended configuration, or the closest contender if "
                 "the defaults are kept, with the defaults; right is better. Dot: median; line: "
                 "interval; grey band: the noise floor.");
  return cards;
}

}  // namespace pinion::harness
