#pragma once

#include <functional>
#include <string>

#include "harness/space/definition.h"
#include "harness/sweep/source.h"
#include "harness/sweep/state.h"

namespace pinion::harness {

// Where and how live trials are run.
struct LiveOptions {
  std::string folder;         // of the sweep: logs go to its logs/
  std::string binary;         // pinion itself: trials are its children
  double trial_limit_s = 60;  // to begin with
  std::function<bool()> interrupted = [] { return false; };
};

// Trials on the engine, each a child process; every one is in the store before the next one starts,
// and one that is there already is not run again.
class LiveSource : public StoredSource {
 public:
  LiveSource(LiveOptions options, const SweepMeta& meta,
             const std::vector<CandidateRow>& candidates, const std::vector<TrialRow>& trials,
             Store& store, Progress& progress);

  Result<std::optional<TrialRow>> Run(const Slot& slot, int position,
                                      const ProgressLine& line) override;
  SweepEnd WhyNone() const override { return why_none_; }

 private:
  // `room_s`: the trial is ended, and lost, should it take longer.
  Result<std::optional<TrialRow>> Measure(const Slot& slot, int position, double room_s);
  Status RaiseTrialLimit();
  // Whether some candidate has several replicas: then all are measured as servers.
  bool OverHttp() const;
  double HangSeconds(bool ceilings) const;
  // The first of its candidate in the race: what the machine can do is measured once for each.
  bool IsFirst(const Slot& slot) const;
  double CeilingsSecondsSoFar() const;  // of all candidates
  // Whether another run of the same candidate in the same round, on the same prompts, gave other
  // tokens; empty hashes (a batch that was cut) tell nothing.
  bool SaidSomethingElse(const TrialRow& trial) const;
  std::string Summary(const TrialRow& trial) const;

  LiveOptions options_;
  const SweepMeta& meta_;
  const std::vector<CandidateRow>& candidates_;
  Store& store_;
  Progress& progress_;
  SweepEnd why_none_ = SweepEnd::kInterrupted;
};

}  // namespace pinion::harness
