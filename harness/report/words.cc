#include "harness/report/words.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/base/strings.h"
#include "harness/report/distribution.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

Objective ObjectiveOf(const Results& results, const Verdict& verdict) {
  for (const Objective objective : results.definition.objectives)
    if (verdict.objective == Name(objective)) return objective;
  return Objective::kThroughput;
}

std::string NameOf(const Results& results, int candidate) {
  const Candidate* found = results.Find(candidate);
  return found ? SettingsText(*found) : StrCat("candidate ", candidate);
}

// "The defaults are best: isa=avx2 is 26 % worse (16 to 30 %)": the next best, however far behind.
std::string DefaultsAreBest(const Results& results, const Verdict& verdict) {
  const auto& interval = verdict.best_ratio.interval;
  if (verdict.best == verdict.recommended || !interval || interval->high >= 1)
    return "Keep the defaults: nothing measured was better";
  return StrCat("The defaults are best: ", NameOf(results, verdict.best), " is ",
                FormatLoss(verdict.best_ratio));
}

std::string Headline(const Results& results, const Verdict& verdict) {
  switch (verdict.outcome) {
    case Outcome::kNoData:
      return results.finished ? "No verdict: the defaults could not be measured"
                              : "No verdict yet: the defaults have not been measured";
    case Outcome::kTooFewRounds:
      return "Not enough rounds to tell: keep the defaults for now";
    case Outcome::kSmallGain:
      return "Keep the defaults: the best gain is real but small";
    case Outcome::kNoDifference:
      return "No difference found: keep the defaults";
    case Outcome::kBaselineBest:
      return DefaultsAreBest(results, verdict);
    case Outcome::kWinner:
      break;
  }
  return NameOf(results, verdict.recommended);
}

std::string Gain(const Results& results, const Verdict& verdict) {
  if (verdict.outcome != Outcome::kWinner) return "";
  return StrCat(FormatGain(verdict.ratio), " ", RowOf(ObjectiveOf(results, verdict)).gain);
}

// "nothing else comes within 5 % of it", or how many do: how large a single winner's lead is.
std::string Lead(const Results& results, const Verdict& verdict) {
  constexpr double kClose = 0.95;
  size_t close = 0;
  const Objective objective = ObjectiveOf(results, verdict);
  for (const Candidate& candidate : results.candidates)
    close += candidate.id != verdict.recommended &&
                     candidate.Ratio(objective) > verdict.ratio.median * kClose
                 ? 1
                 : 0;
  if (close == 0) return "nothing else comes within 5 % of it";
  return StrCat(Counted(close, "other"), close == 1 ? " comes" : " come", " within 5 % of it");
}

// "With 8 clients 95 % of first tokens arrive within 1.63 s (defaults: 2.32 s)."; empty if no
// requests were timed.
std::string WaitText(const Results& results, const Candidate& candidate) {
  const auto& loops = results.definition.workload.concurrency;
  if (loops.empty()) return "";
  const int most = *std::max_element(loops.begin(), loops.end());
  const Distribution* waits = FindDistribution(candidate, "ttft_s", most);
  if (!waits) return "";
  const double tail = TailQuantile(waits->n);
  std::string text =
      StrCat("With ", Counted(static_cast<size_t>(most), "client"), " ", std::lround(tail * 100),
             " % of first tokens arrive within ", FormatFigure("s", ValueAt(*waits, tail)));
  const Distribution* before = FindDistribution(results.candidates.front(), "ttft_s", most);
  if (before && before != waits)
    text += StrCat(" (defaults: ", FormatFigure("s", ValueAt(*before, tail)), ")");
  return text + ".";
}

// The evidence for the decision: the winner's ratio, or the best alternative's if nothing won.
std::string Confidence(const Results& results, const Verdict& verdict) {
  const bool won = verdict.outcome == Outcome::kWinner;
  const Estimate& ratio = won ? verdict.ratio : verdict.best_ratio;
  if (verdict.outcome == Outcome::kNoData) return "";
  if (!won && verdict.best == verdict.recommended)
    return Counted(verdict.rounds, "round") + "; nothing else was measured to compare with";
  const std::string name = won ? "" : NameOf(results, verdict.best);
  if (verdict.outcome == Outcome::kTooFewRounds)
    return StrCat("so far, ", name, ": ", FormatChange(ratio), " after ", Counted(ratio.n, "round"),
                  ", which may be chance");
  const bool small = verdict.outcome == Outcome::kSmallGain;
  std::string text =
      won ? ""
          : StrCat(small ? "better by less than is worth a change, " : "closest contender, ", name,
                   ": ", FormatChange(ratio), "; ");
  if (ratio.interval)
    text += StrCat(std::floor(ratio.interval->coverage * 100), " % interval ",
                   FormatChangeInterval(ratio), " from ");
  text += Counted(ratio.n, "round");
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
  const Estimate& ratio = verdict.runner_up_ratio;
  const std::string text = StrCat("Runner-up: ", NameOf(results, *verdict.runner_up));
  const std::string rounds = Counted(ratio.n, "round");
  if (ratio.interval)
    return StrCat(text, "; against it the recommended one is at ", FormatChange(ratio), " (",
                  std::floor(ratio.interval->coverage * 100), " % interval ",
                  FormatChangeInterval(ratio), ", ", rounds, ")");
  const Candidate* second = results.Find(*verdict.runner_up);
  const bool dropped = second && second->status == CandidateStatus::kDropped;
  return StrCat(text, dropped ? ", dropped after " : ", compared in ", rounds,
                ", too few for an interval");
}

std::string TiedText(const Results& results, const Verdict& verdict) {
  if (verdict.tied.empty()) return "";
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

int64_t IntegerAt(const Json& object, const char* key) {
  const Json* value = object.Find(key);
  return value && value->is_int() ? value->integer() : 0;
}

}  // namespace

std::string SettingsText(const Candidate& candidate) {
  const std::string engine = candidate.engine + ": ";
  const bool is_race = candidate.label.starts_with(engine);
  if (candidate.settings.empty()) {
    if (is_race) return candidate.engine + "'s defaults";
    return candidate.is_baseline ? "the defaults" : candidate.label;
  }
  std::vector<std::string> parts;
  for (const Setting& setting : candidate.settings) parts.push_back(Label({setting}));
  return (is_race ? engine : "") + Join(parts, ", ");
}

bool IsDecided(const Verdict& verdict) {
  return verdict.outcome != Outcome::kNoData && verdict.outcome != Outcome::kTooFewRounds;
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

std::string Answer(const Results& results) {
  // Grouped by configuration: one often wins more than one objective.
  std::map<int, std::vector<std::string>> gains;
  std::vector<std::string> kept;
  bool undecided = results.verdicts.empty(), unmeasured = results.finished && !undecided;
  bool small = false;
  for (const Verdict& verdict : results.verdicts) {
    undecided |= !IsDecided(verdict);
    small |= verdict.outcome == Outcome::kSmallGain;
    unmeasured &= verdict.outcome == Outcome::kNoData;
    if (verdict.outcome != Outcome::kWinner) {
      kept.push_back(verdict.objective);
      continue;
    }
    gains[verdict.recommended].push_back(Gain(results, verdict));
  }
  if (unmeasured) return "No verdict: the defaults could not be measured.";
  if (gains.empty())
    return undecided
               ? "Keep the defaults for now: too little was measured to recommend anything else."
           : small
               ? "Keep the defaults: what was found to be better gains too little to change them."
               : "Keep the defaults: no other configuration was found to be better.";
  std::vector<std::string> parts;
  for (const auto& [candidate, won] : gains)
    parts.push_back(StrCat(parts.empty() ? "Use " : "use ", NameOf(results, candidate), ": ",
                           Join(won, " and "), parts.empty() ? " than the defaults" : ""));
  if (!kept.empty()) parts.push_back(StrCat("for ", Join(kept, " and "), " keep the defaults"));
  return Join(parts, "; ") + ".";
}

std::string Support(const Results& results) {
  std::set<int> winners;
  const Verdict* first = nullptr;
  for (const Verdict& verdict : results.verdicts) {
    if (verdict.outcome != Outcome::kWinner) continue;
    if (!first) first = &verdict;
    winners.insert(verdict.recommended);
  }
  if (!first) return "";
  const std::string text = StrCat("Confirmed in ", Counted(first->ratio.n, "fresh round"));
  if (winners.size() > 1) return text + ".";
  const Candidate* winner = results.Find(first->recommended);
  const std::string wait = winner ? WaitText(results, *winner) : "";
  return StrCat(text, "; ", Lead(results, *first), ".", wait.empty() ? "" : " ", wait);
}

std::string Costs(const Candidate& candidate) {
  std::vector<std::string> parts;
  if (candidate.threads > 0)
    parts.push_back(Counted(static_cast<size_t>(candidate.threads), "thread"));
  const auto add = [&](const char* metric, const char* before, const char* after) {
    const Series* series = candidate.Find(metric, 0);
    if (series && series->estimate.n > 0)
      parts.push_back(
          StrCat(before, FormatFigure(FindMetric(metric)->unit, series->estimate.median), after));
  };
  add("peak_rss_bytes", "", " of peak memory");
  add("start_s", "ready after ", "");
  return Join(parts, ", ");
}

std::vector<Figure> FiguresOf(const Candidate& candidate, Objective objective) {
  std::vector<Figure> figures;
  const auto add = [&](const char* name, const char* metric, LoadLevel level) {
    const Series* series = candidate.Find(metric, level);
    if (series && series->estimate.n > 0) figures.push_back({name, FindMetric(metric), series});
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

std::string MachineLine(const Results& results) {
  const Json& fingerprint = results.machine;
  std::vector<std::string> parts;
  if (const Json* model = fingerprint.Find("cpu_model"); model && model->is_string())
    parts.push_back(model->string());
  const std::pair<const char*, const char*> counts[] = {{"cores", "core"}, {"cpus", "CPU"}};
  for (const auto& [key, noun] : counts)
    if (const int64_t count = IntegerAt(fingerprint, key); count > 0)
      parts.push_back(Counted(static_cast<size_t>(count), noun));
  const Json* nodes = fingerprint.Find("nodes");
  if (nodes && nodes->is_array() && !nodes->array().empty())
    parts.push_back(Counted(nodes->array().size(), "NUMA node"));
  const bool gathered = results.nodes.is_array();
  return StrCat(gathered ? StrCat(results.nodes.array().size(), " nodes, each ") : "",
                Join(parts, ", "));
}

}  // namespace pinion::harness
