#include "harness/report/answer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/report/distribution.h"
#include "harness/report/pair_words.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

// "nothing else comes within 5 % of it", or how many do: how large a single winner's lead is.
std::string Lead(const Results& results, const Verdict& verdict) {
  constexpr double kClose = 0.95;
  size_t close = 0;
  const Objective objective = results.ObjectiveOf(verdict);
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
  const Distribution* before = FindDistribution(results.candidates.front(), "ttft_s", most);
  double tail = TailQuantile(*waits);
  if (before) tail = std::min(tail, TailQuantile(*before));
  std::string text =
      StrCat("With ", Counted(static_cast<size_t>(most), "client"), " ", std::lround(tail * 100),
             " % of first tokens arrive within ", FormatFigure("s", ValueAt(*waits, tail)));
  if (before && before != waits)
    text += StrCat(" (defaults: ", FormatFigure("s", ValueAt(*before, tail)), ")");
  return text + ".";
}

// Groups in the order in which they began.
template <typename T>
using Groups = std::vector<std::pair<std::string, T>>;
template <typename T>
T& GroupOf(Groups<T>& groups, const std::string& key) {
  for (auto& [name, group] : groups)
    if (name == key) return group;
  return groups.emplace_back(key, T()).second;
}

// Noun of an objective: "balanced" is an adjective.
std::string Aim(const Verdict& verdict) {
  return verdict.objective == Name(Objective::kBalanced) ? "balance" : verdict.objective;
}

// The gain without its interval if other objectives share the sentence: their cards have it.
std::string SharedGain(const Results& results, const Verdict& verdict) {
  if (results.verdicts.size() == 1) return FindingOf(results, verdict).predicate;
  std::string change = FormatChange(verdict.ratio);
  if (change.front() == '+') change.erase(0, 1);
  return StrCat(change, " ", RowOf(results.ObjectiveOf(verdict)).gain);
}

// "Use isa=avx2: 42 % more tokens per second and 12 % faster answers than the defaults; for cores
// keep the defaults".
std::string AnswerWithWinners(const Results& results) {
  Groups<std::vector<std::string>> winners, kept;
  for (const Verdict& verdict : results.verdicts) {
    if (verdict.outcome == Outcome::kWinner)
      GroupOf(winners, NameOf(results, verdict.recommended))
          .push_back(SharedGain(results, verdict));
    else
      GroupOf(kept, IsDecided(verdict) ? "" : " for now").push_back(Aim(verdict));
  }
  std::vector<std::string> parts;
  for (const auto& [name, gains] : winners)
    parts.push_back(StrCat(parts.empty() ? "Use " : "use ", name, ": ", Listed(gains),
                           parts.empty() ? " than the defaults" : ""));
  for (const auto& [for_now, objectives] : kept)
    parts.push_back(StrCat("for ", Listed(objectives), " keep the defaults", for_now));
  return Join(parts, "; ") + ".";
}

// "Keep the defaults: no difference was found."
std::string InFull(const Finding& finding) {
  const bool both = !finding.subject.empty() && !finding.predicate.empty();
  return StrCat(finding.advice, ": ", finding.subject, both ? " " : "", finding.predicate, ".");
}

// Objectives without a winner whose findings differ, in one sentence without their numbers: "Keep
// the defaults: nothing better was found for throughput or latency; the gain for balance is real
// but small".
std::string ShortAnswer(const Results& results) {
  std::vector<std::string> all, unbeaten, small, undecided;
  bool best = true;
  for (const Verdict& verdict : results.verdicts) {
    best = best && verdict.outcome == Outcome::kBaselineBest;
    all.push_back(Aim(verdict));
    (!IsDecided(verdict)                      ? undecided
     : verdict.outcome == Outcome::kSmallGain ? small
                                              : unbeaten)
        .push_back(Aim(verdict));
  }
  if (best) return StrCat("The defaults are best for ", Listed(all), ".");
  std::vector<std::string> parts;
  if (!unbeaten.empty()) parts.push_back("nothing better was found for " + Listed(unbeaten, "or"));
  if (!small.empty()) parts.push_back(StrCat("the gain for ", Listed(small), " is real but small"));
  if (!undecided.empty()) parts.push_back("there is no verdict for " + Listed(undecided, "or"));
  return StrCat("Keep the defaults", undecided.empty() ? "" : " for now", ": ", Join(parts, "; "),
                ".");
}

bool IsWon(const Verdict& verdict) { return verdict.outcome == Outcome::kWinner; }

}  // namespace

std::string Answer(const Results& results) {
  if (results.verdicts.empty()) return "Keep the defaults for now: nothing was measured yet.";
  if (IsPair(results)) return PairHeadline(results, results.verdicts.front()) + ".";
  if (std::any_of(results.verdicts.begin(), results.verdicts.end(), IsWon))
    return AnswerWithWinners(results);
  std::set<std::string> findings;
  for (const Verdict& verdict : results.verdicts)
    findings.insert(InFull(FindingOf(results, verdict)));
  return findings.size() == 1 ? *findings.begin() : ShortAnswer(results);
}

std::string Support(const Results& results) {
  std::set<int> winners;
  const Verdict* first = nullptr;
  for (const Verdict& verdict : results.verdicts) {
    if (!IsWon(verdict)) continue;
    if (!first) first = &verdict;
    winners.insert(verdict.recommended);
  }
  if (!first || IsPair(results)) return "";
  const std::string text = first->confirmed
                               ? StrCat("Confirmed in ", Counted(first->ratio.n, "fresh round"))
                               : StrCat("Measured in ", Counted(first->ratio.n, "round"));
  if (winners.size() > 1) return text + ".";
  const Candidate* winner = results.Find(first->recommended);
  const std::string wait = winner ? WaitText(results, *winner) : "";
  return StrCat(text, "; ", Lead(results, *first), ".", wait.empty() ? "" : " ", wait);
}

}  // namespace pinion::harness
