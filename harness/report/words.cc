#include "harness/report/words.h"

#include <cmath>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/report/pair_words.h"
#include "harness/stats/exchanges.h"
#include "harness/stats/rules.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

// The next best, however far behind.
Finding DefaultsAreBest(const Results& results, const Verdict& verdict) {
  const auto& interval = verdict.best_ratio.interval;
  if (verdict.best == verdict.recommended)
    return {"Keep the defaults", "nothing else was measured", ""};
  if (!interval || interval->high >= 1)  // dropped too early for an interval
    return {"The defaults are best", "everything else that was measured is worse", ""};
  return {"The defaults are best", NameOf(results, verdict.best) + " is",
          FormatLoss(verdict.best_ratio)};
}

Finding TooFewRounds(const Results& results, const Verdict& verdict) {
  const std::string advice = "Keep the defaults for now";
  const auto& interval = verdict.best_ratio.interval;
  if (!verdict.unconfirmed && interval && interval->high < 1)
    return {"Keep the defaults",
            "the closest contender was behind, in too few rounds for a verdict", ""};
  if (!verdict.unconfirmed) return {advice, "there were too few rounds to tell", ""};
  const Candidate* leader = results.Find(*verdict.unconfirmed);
  const std::string name = NameOf(results, *verdict.unconfirmed);
  if (leader && GaveOut(leader->status))
    return {advice, name + " led and failed before it was confirmed", ""};
  return {advice, StrCat("the budget had no room to confirm ", name, ", which led"), ""};
}

// A sweep whose defaults never ran ends with an error, unless it is their last trials that failed.
Finding WithoutData(const Results& results) {
  if (!results.finished) return {"No verdict yet", "the defaults have not been measured", ""};
  const std::string advice = "No verdict";
  if (GaveOut(results.candidates.front().status))
    return {advice, "the defaults could not be measured", ""};
  if (results.rounds_done == 0)
    return {advice, "the budget was spent before the first round was whole", ""};
  return {advice, "the trials of the defaults have no figure for it", ""};
}

// NoDifference or, if some are worse, "7 of 9 others are worse, and the rest cannot
// be told from the defaults (within 2.1 %)".
std::string NoDifferenceText(const Results& results, const Verdict& verdict) {
  size_t others = 0;
  for (const Candidate& candidate : results.candidates) {
    const Comparison* compared = candidate.Find(results.ObjectiveOf(verdict));
    const bool counts =
        candidate.status == CandidateStatus::kOk || candidate.status == CandidateStatus::kDropped;
    if (candidate.status == CandidateStatus::kTooSlow) ++others;
    if (counts && !candidate.is_baseline && compared && compared->ratio.n > 0) ++others;
  }
  const size_t alike = verdict.tied.size();
  if (alike == 0 || others <= alike) return NoDifference(results, verdict);
  return StrCat(others - alike, " of ", others, others - alike == 1 ? " others is" : " others are",
                " worse, and the rest cannot be told from the defaults",
                verdict.floor > 0 ? StrCat(" (within ", FormatShareOrFactor(verdict.floor), ")")
                                  : std::string());
}

std::string Headline(const Results& results, const Verdict& verdict) {
  if (IsPair(results)) return PairHeadline(results, verdict);
  if (verdict.outcome == Outcome::kWinner) return NameOf(results, verdict.recommended);
  const Finding finding = FindingOf(results, verdict);
  return StrCat(finding.advice, ": ", finding.subject, finding.predicate.empty() ? "" : " ",
                finding.predicate);
}

std::string Gain(const Results& results, const Verdict& verdict) {
  if (verdict.outcome != Outcome::kWinner || IsPair(results)) return "";
  return StrCat(FormatGain(verdict.ratio), " ", RowOf(results.ObjectiveOf(verdict)).gain);
}

// "closest contender, isa=avx2: +0.3 %; ", or the number of its rounds without an estimate, which
// would read as a finding, if they are too few for an interval.
std::string Contender(const Results& results, const Verdict& verdict) {
  const Estimate& ratio = verdict.best_ratio;
  const std::string name = NameOf(results, verdict.best);
  if (ratio.interval) return StrCat("closest contender, ", name, ": ", FormatChange(ratio), "; ");
  return StrCat("closest contender: ", name, ", after ", Counted(ratio.n, "round"),
                ", too few for an interval");
}

// Evidence of the decision: the winner's ratio, or the best alternative's if nothing won.
std::string Confidence(const Results& results, const Verdict& verdict) {
  const bool won = verdict.outcome == Outcome::kWinner;
  const Estimate& ratio = won ? verdict.ratio : verdict.best_ratio;
  if (verdict.outcome == Outcome::kNoData) return "";
  if (!won && verdict.best == verdict.recommended) return Counted(verdict.rounds, "round");
  const bool early = verdict.outcome == Outcome::kTooFewRounds && !verdict.unconfirmed;
  const bool is_named = won || !FindingOf(results, verdict).predicate.empty();
  std::string text = is_named ? "" : Contender(results, verdict);
  if (ratio.interval)
    text += StrCat(std::floor(ratio.interval->coverage * 100), " % interval ",
                   FormatChangeInterval(ratio), " from ");
  if (ratio.interval || is_named) text += Counted(ratio.n, "round");
  if (early)
    return StrCat(text, "; a verdict needs ",
                  IsPair(results) ? StrCat(LeastPairs(kPairLevel), " rounds")
                                  : StrCat(LeastRoundsFor(verdict.comparisons), " fresh rounds"));
  if (verdict.confirmed) text += " on fresh prompts";
  if (verdict.comparisons > 1)
    text += StrCat(", corrected for ", verdict.comparisons, " comparisons");
  return text;
}

// "Runner-up: isa=avx512; against it the recommended one is at +3.1 % (97 % interval ...)", or
// "Runner-up: isa=avx512, dropped after 2 rounds, too few for an interval": an estimate without an
// interval would read as a finding.
std::string RunnerUpText(const Results& results, const Verdict& verdict) {
  if (!verdict.runner_up) return "";
  const Estimate& lead = verdict.runner_up_ratio;
  const std::string text = StrCat("Runner-up: ", NameOf(results, *verdict.runner_up));
  const std::string rounds = Counted(lead.n, "round");
  if (lead.interval)
    return StrCat(text, "; against it the recommended one is at ", FormatChange(lead), " (",
                  std::floor(lead.interval->coverage * 100), " % interval ",
                  FormatChangeInterval(lead), ", ", rounds, ")");
  const Candidate* second = results.Find(*verdict.runner_up);
  const bool dropped = second && second->status == CandidateStatus::kDropped;
  return StrCat(text, dropped ? ", dropped after " : ", compared in ", rounds,
                ", too few for an interval");
}

std::string TiedText(const Results& results, const Verdict& verdict) {
  if (verdict.tied.empty() || IsPair(results)) return "";
  constexpr size_t kNamed = 3;  // more would bury the verdict; the table lists all of them
  std::vector<std::string> names;
  for (const int candidate : verdict.tied) {
    if (names.size() == kNamed) break;
    names.push_back(NameOf(results, candidate));
  }
  const size_t others = verdict.tied.size() - names.size();
  const bool won = verdict.outcome == Outcome::kWinner;
  return StrCat("Not distinguishable from ", won ? "it" : "the defaults", ": ", Join(names, "; "),
                others ? StrCat(" and ", others, " more") : std::string(),
                won ? ". The simpler one is recommended" : "");
}

}  // namespace

std::string SettingsText(const Candidate& candidate) {
  const std::string engine = candidate.engine + ": ";
  const bool is_race = candidate.label.starts_with(engine);
  if (candidate.settings.empty()) {
    if (is_race) return candidate.engine + " with its defaults";
    return candidate.is_baseline ? "the defaults" : candidate.label;
  }
  std::vector<std::string> parts;
  for (const Setting& setting : candidate.settings) parts.push_back(Label({setting}));
  return (is_race ? engine : "") + Join(parts, ", ");
}

std::string NameOf(const Results& results, int candidate) {
  const Candidate* found = results.Find(candidate);
  return found ? SettingsText(*found) : StrCat("candidate ", candidate);
}

bool IsDecided(const Verdict& verdict) {
  return verdict.outcome != Outcome::kNoData && verdict.outcome != Outcome::kTooFewRounds;
}

Finding FindingOf(const Results& results, const Verdict& verdict) {
  switch (verdict.outcome) {
    case Outcome::kWinner:
      return {"Use " + NameOf(results, verdict.recommended), "", Gain(results, verdict)};
    case Outcome::kSmallGain:
      return {"Keep the defaults",
              NameOf(results, verdict.best) + " gives a real but small gain of",
              FormatGain(verdict.best_ratio)};
    case Outcome::kBaselineBest:
      return DefaultsAreBest(results, verdict);
    case Outcome::kNoDifference:
      return {"Keep the defaults", NoDifferenceText(results, verdict), ""};
    case Outcome::kTooFewRounds:
      return TooFewRounds(results, verdict);
    case Outcome::kNoData:
      break;
  }
  return WithoutData(results);
}

Words InWords(const Results& results, const Verdict& verdict) {
  Words words{Headline(results, verdict),     Gain(results, verdict),
              Confidence(results, verdict),   "",
              RunnerUpText(results, verdict), TiedText(results, verdict)};
  words.floor = verdict.floor > 0 ? StrCat("differences below ", FormatShareOrFactor(verdict.floor),
                                           " cannot be resolved here")
                                  : "too few rounds to tell which differences can be resolved here";
  return words;
}

std::string Sentence(const Results& results, const Verdict& verdict) {
  const Words words = InWords(results, verdict);
  std::string text = words.headline;
  if (!words.gain.empty()) text = StrCat("Use ", text, ": ", words.gain, " than the defaults");
  for (const std::string* line : {&words.confidence, &words.floor})
    if (!line->empty()) text += "; " + *line;
  text += ".";
  for (const std::string* line : {&words.runner_up, &words.tied})
    if (!line->empty()) text += StrCat(" ", *line, ".");
  return text;
}

std::string Costs(const Candidate& candidate) {
  std::vector<std::string> parts;
  if (candidate.threads > 0)
    parts.push_back(Counted(static_cast<size_t>(candidate.threads), "thread"));
  const auto add = [&](const char* metric, const char* before, const char* after) {
    if (const Series* series = candidate.Find(metric, 0))
      parts.push_back(
          StrCat(before, FormatFigure(FindMetric(metric)->unit, series->estimate.median), after));
  };
  add("peak_rss_bytes", "", " of peak memory");
  add("start_s", "ready after ", "");
  return Join(parts, ", ");
}

double MeanOf(const Series& series) {
  double sum = 0;
  for (const Sample& sample : series.samples) sum += sample.value;
  return series.samples.empty() ? 0 : sum / static_cast<double>(series.samples.size());
}

std::string MeanText(double mean) { return Printf(mean < 10 ? "%.2g" : "%.0f", mean); }

std::vector<Figure> FiguresOf(const Candidate& candidate, Objective objective) {
  std::vector<Figure> figures;
  const auto add = [&](const char* name, const char* metric, LoadLevel level) {
    if (const Series* series = candidate.Find(metric, level))
      figures.push_back({name, FindMetric(metric), series});
  };
  if (objective != Objective::kLatency) add("output", "output_tokens_per_s", 0);
  const ObjectiveRow& row = RowOf(objective);
  if (row.metric && objective != Objective::kThroughput)
    add(row.figure, row.metric, objective.level);
  if (objective == Objective::kLatency || objective == Objective::kBalanced) {
    add("first token", "ttft_s", 1);
    add("per token", "tpot_s", 1);
  }
  return figures;
}

std::string EffortText(const Results& results) {
  size_t measured = 0;
  for (const Candidate& candidate : results.candidates) measured += !candidate.series.empty();
  std::string text =
      StrCat(measured, " of ", results.candidates.size(), " configurations measured, ",
             Counted(static_cast<size_t>(results.rounds_done), "round"));
  if (results.confirmation_rounds > 0)
    text += StrCat(" and ", results.confirmation_rounds, " to confirm");
  return StrCat(text, ", ", FormatSeconds(results.elapsed_s));
}

std::string MachineLine(const Results& results) {
  const Json& fingerprint = results.machine;
  std::vector<std::string> parts;
  if (const std::string model = TextAt(fingerprint, "cpu_model"); !model.empty())
    parts.push_back(model);
  const std::pair<const char*, const char*> counts[] = {{"cores", "core"}, {"cpus", "CPU"}};
  for (const auto& [key, noun] : counts)
    if (const int64_t count = Optional<int64_t>(fingerprint, key, 0).value_or(0); count > 0)
      parts.push_back(Counted(static_cast<size_t>(count), noun));
  if (const Json::Array& nodes = ItemsOf(fingerprint, "nodes"); !nodes.empty())
    parts.push_back(Counted(nodes.size(), "NUMA node"));
  const bool gathered = results.nodes.is_array();
  return StrCat(gathered ? StrCat(results.nodes.array().size(), " nodes, each ") : "",
                Join(parts, ", "));
}

}  // namespace pinion::harness
