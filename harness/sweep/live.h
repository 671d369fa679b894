#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "harness/space/definition.h"
#include "harness/sweep/proposer.h"
#include "harness/sweep/source.h"
#include "harness/sweep/state.h"
#include "harness/trial/runner.h"
#include "harness/trial/trial.h"

namespace pinion::harness {

// Parameters of live trials.
struct LiveOptions {
  std::string folder;         // of the sweep; logs go to its logs/
  std::string binary;         // the pinion program, which runs trials as its children
  double trial_limit_s = 60;  // initially
  double most_search_s = 60;  // to which the limit may be raised for the search of an SLO's load
  int batch_prompts = 16;     // initially, of the offline batch
  std::function<bool()> interrupted = [] { return false; };
  const Clock* clock = &kMachineClock;  // of the seconds that trials take
  Proposer* proposer = nullptr;         // of the strategies that need one
};

// Runs trials on the engine, each in a child process. Every trial is stored before the next one
// starts, and a stored one is not run again.
class LiveSource : public StoredSource {
 public:
  LiveSource(LiveOptions options, const SweepMeta& meta,
             const std::vector<CandidateRow>& candidates, const std::vector<TrialRow>& trials,
             Store& store, Progress& progress);

  Result<std::optional<TrialRow>> Run(const Slot& slot, int position,
                                      const ProgressLine& line) override;
  Result<std::vector<int>> Propose(int round, const ProposalQuestion& question) override;
  SweepEnd WhyNone() const override { return why_none_; }

 private:
  // A trial that takes longer than `room_s` is killed and lost.
  Result<std::optional<TrialRow>> Measure(const Slot& slot, int position, double room_s);
  // The other side of a pair's round, if the two take turns and it is not measured yet.
  Result<std::optional<Slot>> OtherInTurns(const Slot& slot);
  // Both sides' trials; returns the one of `slots[0]`, and the other is then a stored one.
  Result<std::optional<TrialRow>> MeasureInTurns(const std::array<Slot, 2>& slots, int position,
                                                 double room_s);
  // Whether trials still get the time and the batch that the defaults need: until one has run.
  bool IsFitting() const;
  // Whether goodput is asked for, this trial came to none, and a longer one may.
  bool LacksSearchTime(const TrialRow& trial) const;
  Status FitTrials();
  int BatchPromptsOf(const TrialRow& trial) const;
  int LeastBatch() const;
  void ShrinkBatch();
  Status RaiseTrialLimit();
  double DeadlineSeconds(const EngineChoice& engine) const;
  // The request to a trial's process, and the settings of its configuration.
  struct TrialJob {
    std::string engine;  // its name in the definition
    TrialRequest request;
    std::vector<Setting> settings;
  };
  Result<TrialJob> JobFor(const Slot& slot) const;
  TrialRow NewRow(const Slot& slot, int position) const;
  Result<TrialProcess> ProcessFor(const TrialJob& job, double timeout_s) const;
  // Takes the outcome of a trial, and stores it.
  Status Keep(const TrialJob& job, const TrialOutcome& outcome, TrialRow& trial);
  // The candidate's first trial in the race, which also measures the machine's ceilings.
  bool IsFirst(const Slot& slot) const;
  double CeilingsSecondsSoFar() const;  // of all candidates
  std::string Summary(const TrialRow& trial) const;

  LiveOptions options_;
  const SweepMeta& meta_;
  const std::vector<CandidateRow>& candidates_;
  Store& store_;
  Progress& progress_;
  SweepEnd why_none_ = SweepEnd::kInterrupted;
  std::optional<bool> takes_turns_;  // of a pair; unset: not looked at yet
};

}  // namespace pinion::harness
