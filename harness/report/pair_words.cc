#include "harness/report/pair_words.h"

#include <cmath>

#include "engine/base/strings.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

// "A" and "B" if they are two engines, which is how the command line of a comparison names them.
std::string SideName(const Results& results, size_t side) {
  const Candidate& candidate = results.candidates[side];
  const bool two_engines = results.candidates[0].engine != results.candidates[1].engine;
  return two_engines ? candidate.engine : SettingsText(candidate);
}

std::string Undecided(const Results& results, const std::string& a, const std::string& b) {
  for (size_t side = 0; side < results.candidates.size(); ++side)
    if (const std::string why = WhyExcluded(results.candidates[side]); !why.empty())
      return StrCat(side == 0 ? a : b, " ", why);
  return StrCat("There were too few rounds to compare ", b, " with ", a);
}

}  // namespace

bool IsPair(const Results& results) {
  return results.definition.strategy == Strategy::kPair && results.candidates.size() == 2;
}

std::string PairHeadline(const Results& results, const Verdict& verdict) {
  const std::string a = SideName(results, 0), b = SideName(results, 1);
  switch (verdict.outcome) {
    case Outcome::kWinner:
    case Outcome::kSmallGain:
      return StrCat(b, " gives ", FormatGain(verdict.best_ratio), " ",
                    RowOf(results.ObjectiveOf(verdict)).gain, " than ", a);
    case Outcome::kBaselineBest:
      return StrCat(b, " is ", FormatLoss(verdict.best_ratio), " than ", a);
    case Outcome::kNoDifference:
      return StrCat("N", NoDifference(results, verdict).substr(1), " between ", b, " and ", a);
    case Outcome::kTooFewRounds:
    case Outcome::kNoData:
      break;
  }
  return Undecided(results, a, b);
}

std::string WhyExcluded(const Candidate& candidate) {
  const std::string& reason = candidate.reason;
  switch (candidate.status) {
    case CandidateStatus::kFailed:
      return "failed: " + reason;
    case CandidateStatus::kTooSlow:
      return "was too slow: " + reason;
    case CandidateStatus::kInfeasible:
      return "was left out: " + reason;
    case CandidateStatus::kDropped:
      return "was dropped: " + reason;
    case CandidateStatus::kPruned:  // "not measured: ...", and "disqualified: ..."
    case CandidateStatus::kPending:
    case CandidateStatus::kDisqualified:
      return reason.empty() ? "" : "was " + reason;
    case CandidateStatus::kOk:
      break;
  }
  return "";
}

std::string NoDifference(const Results& results, const Verdict& verdict) {
  const double change = std::abs(verdict.best_ratio.median - 1);
  return change > results.definition.epsilon ? "no difference was proven"
                                             : "no difference was found";
}

}  // namespace pinion::harness
