#include "harness/report/words.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

std::string Printf(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// Three significant digits, never an exponent: 0.0123, 1.23, 12.3, 123, 1230.
std::string Significant(double value) {
  if (value == 0 || !std::isfinite(value)) return Printf("%.0f", value);
  const int before = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
  return Printf(StrCat("%.", std::clamp(3 - before, 0, 6), "f").c_str(), value);
}

std::string Percent(double fraction) { return Printf("%.1f %%", fraction * 100); }

// What a gain of this objective is made of.
const char* GainNoun(Objective objective) {
  switch (objective) {
    case Objective::kThroughput:
      return "more tokens per second";
    case Objective::kLatency:
      return "faster answers";
    case Objective::kGoodput:
      return "more requests per second within the SLO";
    case Objective::kCores:
      return "better use of cores";
    case Objective::kEnergy:
      return "more tokens per joule";
    case Objective::kBalanced:
      break;
  }
  return "better balance of both";
}

Objective ObjectiveOf(const Results& results, const Verdict& verdict) {
  for (const Objective objective : results.definition.objectives)
    if (verdict.objective == Name(objective)) return objective;
  return Objective::kThroughput;
}

std::string NameOf(const Results& results, int candidate) {
  const Candidate* found = results.Find(candidate);
  return found ? SettingsText(*found) : StrCat("candidate ", candidate);
}

std::string Headline(const Results& results, const Verdict& verdict) {
  switch (verdict.outcome) {
    case Outcome::kNoData:
      return "No verdict: the defaults could not be measured";
    case Outcome::kTooFewRounds:
      return "Not enough rounds to tell: keep the defaults for now";
    case Outcome::kNoDifference:
      return "No difference found: keep the defaults";
    case Outcome::kDefaultBest:
      return "Keep the defaults: nothing measured was better";
    case Outcome::kWinner:
      break;
  }
  return NameOf(results, verdict.recommended);
}

std::string Gain(const Results& results, const Verdict& verdict) {
  if (verdict.outcome != Outcome::kWinner) return "";
  std::string interval;
  if (const auto& range = verdict.ratio.interval)
    interval = StrCat(" [", Printf("%.1f", (range->low - 1) * 100), ", ",
                      Printf("%.1f", (range->high - 1) * 100), "]");
  return StrCat(Percent(verdict.ratio.median - 1), interval, " ",
                GainNoun(ObjectiveOf(results, verdict)));
}

// The best candidate in `objective` beside `except`; nullptr where there is no other.
const Candidate* BestBeside(const Results& results, int except, Objective objective) {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : results.candidates)
    if (candidate.id != except && candidate.Ratio(objective) > 0 && !candidate.series.empty() &&
        (!best || candidate.Ratio(objective) > best->Ratio(objective)))
      best = &candidate;
  return best;
}

// "; nothing else comes within 5 % of it", or who does: what a single winner's lead is worth.
std::string Lead(const Results& results, const Verdict& verdict) {
  constexpr double kClose = 0.95;
  size_t close = 0;
  const Objective objective = ObjectiveOf(results, verdict);
  for (const Candidate& candidate : results.candidates)
    close += candidate.id != verdict.recommended &&
                     candidate.Ratio(objective) > verdict.ratio.median * kClose
                 ? 1
                 : 0;
  if (close == 0) return "; nothing else comes within 5 % of it";
  return StrCat("; ", Counted(close, "other"), close == 1 ? " comes" : " come",
                " within 5 % of it");
}

// What the decision rests on: the winner's ratio, or the best alternative's where nothing won.
std::string Confidence(const Results& results, const Verdict& verdict) {
  const bool won = verdict.outcome == Outcome::kWinner;
  const Estimate& ratio = won ? verdict.ratio : verdict.best_ratio;
  if (verdict.outcome == Outcome::kNoData) return "";
  if (!won && verdict.best == verdict.recommended)
    return Counted(verdict.rounds, "round") + "; nothing to compare the defaults with";
  std::string text = won ? ""
                         : StrCat("closest, ", NameOf(results, verdict.best), ": ",
                                  FormatChange(ratio.median), "; ");
  if (ratio.interval)
    text += StrCat(Printf("%.0f %% interval ", std::floor(ratio.interval->coverage * 100)),
                   FormatChangeInterval(ratio), " from ");
  text += Counted(ratio.n, "round");
  if (verdict.confirmed) text += " on fresh prompts";
  if (won && !verdict.confirmed) text += ", not confirmed on fresh prompts";
  return text;
}

std::string TiedText(const Results& results, const Verdict& verdict) {
  if (verdict.tied.empty()) return "";
  constexpr size_t kNamed = 3;  // more would bury the verdict; the table marks all of them
  std::vector<std::string> names;
  for (const int candidate : verdict.tied) {
    if (names.size() == kNamed) break;
    names.push_back(NameOf(results, candidate));
  }
  const size_t others = verdict.tied.size() - names.size();
  return StrCat("Not told apart from it: ", Join(names, "; "),
                others ? StrCat(" and ", others, " more") : std::string());
}

int64_t IntegerAt(const Json& object, const char* key) {
  const Json* value = object.Find(key);
  return value && value->is_int() ? value->integer() : 0;
}

}  // namespace

std::string FormatFigure(const std::string& unit, double value) {
  if (unit == "bytes") return FormatBytes(static_cast<uint64_t>(std::max(0.0, value)));
  if (unit == "share") return Percent(value);
  if (unit == "bytes/s") return Significant(value * 1e-9) + " GB/s";
  if (unit == "FLOP/s") return Significant(value * 1e-9) + " GFLOP/s";
  if (unit == "s" && value < 1e-3) return Significant(value * 1e6) + " µs";
  if (unit == "s" && value < 1) return Significant(value * 1e3) + " ms";
  return StrCat(Significant(value), " ", unit);
}

std::string FormatRange(const std::string& unit, double low, double high) {
  const std::string from = FormatFigure(unit, low), to = FormatFigure(unit, high);
  const std::string suffix = to.substr(to.find(' '));
  const bool same_unit = from.ends_with(suffix);
  return StrCat(same_unit ? from.substr(0, from.size() - suffix.size()) : from, " to ", to);
}

std::string FormatChange(double ratio) {
  if (ratio >= 10) return Significant(ratio) + " times";  // "+1240.0 %" is hard to read
  return Printf("%+.1f %%", (ratio - 1) * 100);
}

std::string FormatChangeInterval(const Estimate& ratio) {
  if (!ratio.interval) return StrCat("no interval (n = ", ratio.n, ")");
  const std::string low = FormatChange(ratio.interval->low),
                    high = FormatChange(ratio.interval->high);
  const bool percent = low.ends_with(" %") && high.ends_with(" %");
  return StrCat(percent ? low.substr(0, low.size() - 2) : low, " to ", high);
}

std::string Counted(size_t count, const char* noun) {
  return StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string FormatSeconds(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 120) return StrCat(whole, " s");
  if (whole < 7200) return StrCat(whole / 60, " min ", whole % 60, " s");
  return StrCat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

std::string SettingsText(const Candidate& candidate) {
  if (candidate.settings.empty()) return candidate.is_anchor ? "the defaults" : candidate.label;
  std::vector<std::string> parts;
  for (const Setting& setting : candidate.settings)
    parts.push_back(setting.key + "=" + setting.value);
  return Join(parts, ", ");
}

const char* Goal(Objective objective) {
  switch (objective) {
    case Objective::kThroughput:
      return "most output tokens per second of a batch";
    case Objective::kLatency:
      return "shortest time from request to last token, one client";
    case Objective::kGoodput:
      return "most requests per second that meet the SLO, at the best concurrency measured";
    case Objective::kCores:
      return "fewest cores, where half of them may cost little of the throughput (cores_within)";
    case Objective::kEnergy:
      return "most output tokens per joule of all processor packages";
    case Objective::kBalanced:
      break;
  }
  return "geometric mean of throughput and latency, each relative to the defaults";
}

bool IsDecided(const Verdict& verdict) {
  return verdict.outcome != Outcome::kNoData && verdict.outcome != Outcome::kTooFewRounds;
}

Words InWords(const Results& results, const Verdict& verdict) {
  Words words{Headline(results, verdict), Gain(results, verdict), Confidence(results, verdict), "",
              TiedText(results, verdict)};
  // Above 100 % a percentage says less than the factor.
  const std::string floor =
      verdict.floor < 1 ? Percent(verdict.floor) : "a factor of " + Significant(1 + verdict.floor);
  words.floor = verdict.floor > 0 ? StrCat("differences below ", floor, " cannot be resolved here")
                                  : "too few rounds to say which differences can be resolved here";
  return words;
}

std::string Answer(const Results& results) {
  // Grouped by what is recommended: one configuration often wins more than one objective.
  std::map<int, std::vector<std::string>> gains;
  std::vector<std::string> kept;
  const Verdict* winner = nullptr;
  bool undecided = results.verdicts.empty();
  for (const Verdict& verdict : results.verdicts) {
    undecided |= !IsDecided(verdict);
    if (verdict.outcome != Outcome::kWinner) {
      kept.push_back(verdict.objective);
      continue;
    }
    winner = &verdict;
    gains[verdict.recommended].push_back(Gain(results, verdict));
  }
  if (gains.empty())
    return undecided
               ? "Keep the defaults for now: too little was measured to recommend anything else."
               : "Keep the defaults: no other configuration was found to be better.";
  std::vector<std::string> parts;
  for (const auto& [candidate, won] : gains)
    parts.push_back(StrCat(parts.empty() ? "Use " : "use ", NameOf(results, candidate), ": ",
                           Join(won, " and "), " than the defaults"));
  if (gains.size() == 1 && gains.begin()->second.size() == 1 && winner)
    parts.back() += Lead(results, *winner);
  if (!kept.empty()) parts.push_back(StrCat("for ", Join(kept, " and "), " keep the defaults"));
  return Join(parts, "; ") + ".";
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
  add("peak_rss_bytes", "", " of memory at the peak");
  add("start_s", "ready after ", "");
  return Join(parts, ", ");
}

std::string RunnerUp(const Results& results, const Verdict& verdict, Objective objective) {
  const Candidate* second = BestBeside(results, verdict.recommended, objective);
  const Candidate* first = results.Find(verdict.recommended);
  if (!second || !first || first->Ratio(objective) <= 0) return "";
  const bool tied =
      std::find(verdict.tied.begin(), verdict.tied.end(), second->id) != verdict.tied.end();
  const double behind = 1 - second->Ratio(objective) / first->Ratio(objective);
  const std::string name = "Runner-up: " + SettingsText(*second);
  if (tied) return name + ", not told apart from it; the simpler one is recommended.";
  if (behind < 0) return name + ", " + Percent(-behind) + " ahead by its median alone.";
  return name + ", " + Percent(behind) + " behind.";
}

std::vector<Figure> FiguresOf(const Candidate& candidate, Objective objective) {
  std::vector<Figure> figures;
  const auto add = [&](const char* name, const char* metric, int concurrency) {
    const Series* series = candidate.Find(metric, concurrency);
    if (series && series->estimate.n > 0) figures.push_back({name, FindMetric(metric), series});
  };
  if (objective != Objective::kLatency) add("output", "output_tokens_per_s", 0);
  if (objective == Objective::kEnergy) add("energy", "joules_per_token", 0);
  if (objective == Objective::kGoodput)
    for (const Series& one : candidate.series)
      if (one.metric == "goodput" && one.concurrency > 0)
        add("goodput", "goodput", one.concurrency);
  if (objective == Objective::kLatency || objective == Objective::kBalanced) {
    add("first token", "ttft_s", 1);
    add("per token", "tpot_s", 1);
  }
  return figures;
}

std::string MachineLine(const Json& fingerprint) {
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
  return Join(parts, ", ");
}

}  // namespace pinion::harness
