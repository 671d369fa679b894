#include "harness/report/answer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "harness/report/distribution.h"
#include "harness/report/words.h"
#include "harness/stats/text.h"

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
  const double tail = TailQuantile(waits->n);
  std::string text =
      StrCat("With ", Counted(static_cast<size_t>(most), "client"), " ", std::lround(tail * 100),
             " % of first tokens arrive within ", FormatFigure("s", ValueAt(*waits, tail)));
  const Distribution* before = FindDistribution(results.candidates.front(), "ttft_s", most);
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

// "Use isa=avx2: 42 % more tokens per second and 12 % less latency than the defaults; for cores
// keep the defaults".
std::string AnswerWithWinners(const Results& results) {
  Groups<std::vector<std::string>> winners, kept;
  for (const Verdict& verdict : results.verdicts) {
    const Finding finding = FindingOf(results, verdict);
    if (verdict.outcome == Outcome::kWinner)
      GroupOf(winners, NameOf(results, verdict.recommended)).push_back(finding.predicate);
    else
      GroupOf(kept, IsDecided(verdict) ? "" : " for now").push_back(verdict.objective);
  }
  std::vector<std::string> parts;
  for (const auto& [name, gains] : winners)
    parts.push_back(StrCat(parts.empty() ? "Use " : "use ", name, ": ", Listed(gains),
                           parts.empty() ? " than the defaults" : ""));
  for (const auto& [for_now, objectives] : kept)
    parts.push_back(StrCat("for ", Listed(objectives), " keep the defaults", for_now));
  return Join(parts, "; ") + ".";
}

// Those that are not empty, with a blank between.
std::string Spaced(const std::string& before, const std::string& after) {
  return StrCat(before, before.empty() || after.empty() ? "" : " ", after);
}

// What was found, with the objectives in which it was unless that is all of them: "isa=avx2 is 26 %
// worse (16 to 30 %) for throughput; no difference was found for latency and balanced".
std::string FindingsText(const Results& results) {
  Groups<Groups<std::vector<std::string>>> subjects;
  for (const Verdict& verdict : results.verdicts) {
    const Finding finding = FindingOf(results, verdict);
    GroupOf(GroupOf(subjects, finding.subject), finding.predicate).push_back(verdict.objective);
  }
  const bool alike = subjects.size() == 1 && subjects.front().second.size() == 1;
  std::vector<std::string> parts;
  for (const auto& [subject, predicates] : subjects) {
    std::vector<std::string> ends;
    for (const auto& [predicate, objectives] : predicates)
      ends.push_back(Spaced(predicate, alike ? "" : "for " + Listed(objectives)));
    parts.push_back(Spaced(subject, Listed(ends)));
  }
  return Join(parts, "; ");
}

// The advice of all objectives, if none has a winner.
std::string CommonAdvice(const Results& results) {
  std::set<std::string> advices;
  bool decided = true;
  for (const Verdict& verdict : results.verdicts) {
    advices.insert(FindingOf(results, verdict).advice);
    decided = decided && IsDecided(verdict);
  }
  if (advices.size() == 1) return *advices.begin();
  return decided ? "Keep the defaults" : "Keep the defaults for now";
}

bool IsWon(const Verdict& verdict) { return verdict.outcome == Outcome::kWinner; }

}  // namespace

std::string Answer(const Results& results) {
  if (results.verdicts.empty()) return "Keep the defaults for now: nothing was measured yet.";
  if (std::any_of(results.verdicts.begin(), results.verdicts.end(), IsWon))
    return AnswerWithWinners(results);
  return StrCat(CommonAdvice(results), ": ", FindingsText(results), ".");
}

std::string Support(const Results& results) {
  std::set<int> winners;
  const Verdict* first = nullptr;
  for (const Verdict& verdict : results.verdicts) {
    if (!IsWon(verdict)) continue;
    if (!first) first = &verdict;
    winners.insert(verdict.recommended);
  }
  if (!first) return "";
  const std::string text = first->confirmed
                               ? StrCat("Confirmed in ", Counted(first->ratio.n, "fresh round"))
                               : StrCat("Measured in ", Counted(first->ratio.n, "round"));
  if (winners.size() > 1) return text + ".";
  const Candidate* winner = results.Find(first->recommended);
  const std::string wait = winner ? WaitText(results, *winner) : "";
  return StrCat(text, "; ", Lead(results, *first), ".", wait.empty() ? "" : " ", wait);
}

}  // namespace pinion::harness
