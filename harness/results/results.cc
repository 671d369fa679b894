#include "harness/results/results.h"

namespace pinion::harness {

const char* Name(CandidateStatus status) {
  constexpr const char* kNames[] = {"pending",  "ok",      "infeasible", "failed",
                                    "too slow", "dropped", "pruned",     "disqualified"};
  return kNames[static_cast<size_t>(status)];
}

const Series* Candidate::Find(const std::string& metric, LoadLevel level) const {
  for (const Series& one : series)
    if (one.metric == metric && one.level == level) return &one;
  return nullptr;
}

const Comparison* Candidate::Find(Objective objective) const {
  for (const Comparison& comparison : comparisons)
    if (comparison.objective == objective) return &comparison;
  return nullptr;
}

double Candidate::Ratio(Objective objective) const {
  if (is_baseline) return 1;
  const Comparison* comparison = Find(objective);
  return comparison && comparison->ratio.n > 0 ? comparison->ratio.median : 0;
}

const Candidate* Results::Find(int id) const {
  for (const Candidate& candidate : candidates)
    if (candidate.id == id) return &candidate;
  return nullptr;
}

const Verdict* Results::FindVerdict(std::string_view objective) const {
  for (const Verdict& verdict : verdicts)
    if (verdict.objective == objective) return &verdict;
  return nullptr;
}

double Results::FloorOf(Objective objective) const {
  const Verdict* verdict = FindVerdict(objective);
  return verdict ? verdict->floor : 0;
}

Objective Results::ObjectiveOf(const Verdict& verdict) const {
  for (const Objective objective : definition.objectives)
    if (verdict.objective == Name(objective)) return objective;
  return Objective::kThroughput;
}

}  // namespace pinion::harness
