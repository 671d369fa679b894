#include "harness/sweep/warnings.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/base/strings.h"
#include "engine/base/words.h"

namespace pinion::harness {
namespace {

// Settings that a sweep's flags ask for and that another engine of the race lacks.
std::vector<std::string> IgnoredSettings(const std::vector<TrialRow>& trials,
                                         const Results& results) {
  std::map<std::string, std::set<std::string>> ignored;  // by engine
  for (const TrialRow& trial : trials)
    if (const Candidate* candidate = results.Find(trial.candidate))
      for (const std::string& setting : trial.info.ignored_settings)
        ignored[candidate->engine].insert(setting);
  std::vector<std::string> warnings;
  for (const auto& [engine, settings] : ignored)
    warnings.push_back(StrCat(engine, " has no setting for ",
                              Join({settings.begin(), settings.end()}, ", "),
                              ", and was measured without"));
  return warnings;
}

}  // namespace

std::vector<std::string> WarningsOf(const SweepMeta& meta, const std::vector<TrialRow>& trials,
                                    const Results& results) {
  std::vector<std::string> warnings = meta.unavailable;
  for (std::string& one : IgnoredSettings(trials, results)) warnings.push_back(std::move(one));
  size_t suspect = 0, failed = 0, cut = 0, searches = 0;
  for (const TrialRow& trial : trials) {
    suspect += trial.ok && !trial.suspect.empty() ? 1 : 0;
    failed += trial.ok ? 0 : 1;
    const size_t cut_searches = trial.info.has_cut_search() ? 1 : 0;
    cut += trial.ok && trial.info.cut.size() > cut_searches ? 1 : 0;
    searches += trial.ok ? cut_searches : 0;
  }
  const auto warn = [&](size_t count, const char* what) {
    if (count > 0) warnings.push_back(StrCat(count, " of ", trials.size(), " trials ", what));
  };
  const bool busy = 2 * suspect > trials.size() - failed;
  if (suspect > 0)
    warnings.push_back(StrCat("other work on the machine disturbed ", suspect, " of ",
                              Counted(trials.size(), "trial"),
                              busy ? ": end it (find it with pinion doctor or top) and sweep again"
                                   : "; disturbed trials are marked and kept"));
  warn(failed, "failed; see the candidates for the reasons");
  warn(cut,
       "reached their time limit and were measured on fewer tokens; raise the sweep's "
       "--trial-limit");
  warn(searches,
       "ended before their search had found the SLO's load, and have no goodput; raise the sweep's "
       "--trial-limit, and its --budget with it");
  if (results.batch_prompts > 0)
    warnings.push_back(StrCat(
        "the offline batch has ", Counted(static_cast<size_t>(results.batch_prompts), "prompt"),
        " instead of ", meta.definition.workload.load.num_prompts,
        ", because the defaults cannot finish that many in one trial",
        meta.predictions.is_null() ? "" : "; throughput was predicted for the larger one",
        "; a sweep's --trial-limit forces the number"));
  const bool undecided =
      std::any_of(results.verdicts.begin(), results.verdicts.end(), [&](const Verdict& verdict) {
        const bool no_round = verdict.outcome == Outcome::kNoData && results.rounds_done == 0;
        return verdict.outcome == Outcome::kTooFewRounds || (no_round && results.finished);
      });
  // Of a pair, one of whose sides is out, a larger budget would measure the other one.
  const bool has_lost_side =
      results.definition.strategy == Strategy::kPair &&
      std::any_of(results.candidates.begin(), results.candidates.end(), [](const Candidate& one) {
        return one.status != CandidateStatus::kOk && one.status != CandidateStatus::kPending;
      });
  if (undecided && !has_lost_side)
    warnings.push_back(
        StrCat("only ", Counted(static_cast<size_t>(results.rounds_done), "whole round"), " and ",
               results.confirmation_rounds > 0 ? StrCat(results.confirmation_rounds) : "none",
               " to confirm, too few for a verdict; raise the budget"));
  return warnings;
}

}  // namespace pinion::harness
