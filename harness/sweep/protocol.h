#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/space/definition.h"
#include "harness/stats/race.h"
#include "harness/store/store.h"
#include "harness/sweep/forecast.h"
#include "harness/sweep/progress.h"
#include "harness/sweep/proposer.h"
#include "harness/sweep/schedule.h"

namespace pinion::harness {

enum class SweepEnd {
  kDone,           // everything was done
  kBudget,         // everything that fits the budget was done
  kInterrupted,    // the source ended; everything so far is stored
  kBaselineFails,  // the baseline succeeded before, but now keeps failing; everything so far is
                   // stored
};

constexpr bool IsFinished(SweepEnd end) {
  return end == SweepEnd::kDone || end == SweepEnd::kBudget;
}

// The source of trials: an engine, a recording, or a store. The protocol below sees
// nothing else, so that results on recordings hold for engines.
class TrialSource {
 public:
  virtual ~TrialSource() = default;
  // The trial of a slot, measured or looked up. nullopt: there is none and the protocol ends;
  // WhyNone gives the reason.
  virtual Result<std::optional<TrialRow>> Run(const Slot& slot, int position,
                                              const ProgressLine& line) = 0;
  // The candidates of the race's round `round`, if a model proposes them; none: the protocol ends,
  // WhyNone gives the reason. Those with stored trials of that round, if there are any.
  virtual Result<std::vector<int>> Propose(int round, const ProposalQuestion& question);
  // kInterrupted (also at the end of stored trials), or kBudget: it was spent in the middle of a
  // trial.
  virtual SweepEnd WhyNone() const;
  // Trials that exist already and cost nothing.
  virtual const std::map<Slot, TrialRow>& Stored() const = 0;
};

// One objective's race.
struct ObjectiveRace {
  Objective objective = Objective::kThroughput;
  std::vector<int> ids;  // contestants of the race, candidate ids; [0] is the baseline's
  Race race;

  std::optional<size_t> IndexOf(int id) const;
  std::optional<int> leader() const;     // candidate id
  std::optional<int> runner_up() const;  // the next best of those in, except the baseline
};

// Of each candidate that was measured, for each objective, the log of its score over the
// baseline's; none if it failed.
using Gains = std::map<int, std::vector<double>>;

// The results of an experiment.
struct ProtocolState {
  std::vector<TrialRow> trials;      // in the order in which they were run
  std::vector<ObjectiveRace> races;  // of the last stage, one per objective
  // Dropped candidates and why: "worse than default by more than 2 % after 3 rounds".
  std::map<int, std::string> dropped;
  std::map<int, std::string> disqualified;  // candidates that broke a constraint, and how
  // Candidates that were not measured and why: by the predictions they cannot win, or others
  // were more promising and used up the budget.
  std::map<int, std::string> pruned, passed_over;
  int rounds_planned = 0;
  int calibrations_done = 0, rounds_done = 0, confirmations_done = 0;  // whole rounds
  bool race_over = false;                                              // decided, not cut off
  std::map<Objective, int> agreed_leaders;  // of a gathered sweep, in place of `races`
  std::vector<int> confirmed;  // candidates that fresh rounds were run for; without the baseline
};

// The experiment, independent of the source: the baseline against itself, races in randomised
// complete rounds, and the winners against the baseline in fresh ones. Its decisions depend only on
// the definition, the candidates and the trials: the same trials give the same decisions, which is
// how
// --resume and reports repeat them.
class Protocol {
 public:
  // `forecasts`: which candidates to measure first, and which not at all; may be empty.
  Protocol(const Definition& definition, const std::vector<CandidateRow>& candidates,
           const Forecasts& forecasts, TrialSource& source, Progress& progress);

  // Errors: the source's, and a baseline that has never run.
  Result<SweepEnd> Run();
  const ProtocolState& state() const { return state_; }
  const Spending& spending() const { return spending_; }

 private:
  Status Calibrate();
  Status FitTrials();
  Status Search();
  Status SearchByCoordinates();
  Status SearchByHalving();
  Status SearchByProposals();
  Status RaceFinalists(const std::vector<int>& finalists);
  void TakeGains(Gains& gains) const;
  Status RaceByPromise(std::vector<int> waiting);
  void Prune(std::vector<int>& waiting);
  std::vector<int> Leaders() const;
  size_t PlacesBeside(const std::vector<int>& contestants) const;
  Status RunStage(const std::vector<int>& contestants, int most_rounds, bool drops);
  Status RaceRound(const std::vector<int>& racing);
  Status Confirm(bool was_cut);
  Status ContinueRace();

  Status RunRound(const std::vector<int>& contestants, Phase phase, int round);
  bool IsClosed(Phase phase, int round) const;
  Status RepeatDisturbed(const std::vector<TrialRow>& of_round, bool is_new);
  Status RunSlot(const Slot& slot, int position, size_t of);
  void ScoreRound(int round);
  int BaselineRuns() const;
  bool IsPair() const { return definition_.strategy == Strategy::kPair; }
  bool IsOut(int candidate) const;  // it keeps failing, or broke a constraint
  bool BaselineHasRun() const;
  Status TakeBaselineFailures();
  Status TakeDisqualified(const TrialRow& trial);
  bool Fits(int candidate) const;
  bool HasRoomFor(double seconds) const;
  std::vector<int> Challengers(bool was_cut) const;
  std::vector<int> Confirmable(bool was_cut) const;
  double TrialsKept(size_t rounds, size_t challengers) const;
  double ConfirmationTrials() const;
  size_t RoundsThatFit(const std::vector<int>& contestants) const;
  size_t Comparisons(size_t challengers) const;  // tests that Holm's procedure corrects for
  std::vector<int> StillRacing() const;
  bool AllOver() const;
  bool HasNoCalibration() const;
  int FirstFreshConfirmation(const std::vector<int>& contestants) const;
  void RecordDropped();
  void AnnouncePlan();
  std::string RoomToConfirm() const;
  void AnnounceFloors();
  bool Ended() const { return end_.has_value(); }

  const Definition& definition_;
  const std::vector<CandidateRow>& candidates_;
  const Forecasts& forecasts_;
  TrialSource& source_;
  Progress& progress_;
  Spending spending_;
  ProtocolState state_;
  std::optional<SweepEnd> end_;  // set once no further trial runs
  double held_back_trials_ =
      0;           // trials that the race must leave room for, besides the confirmation
  int round_ = 0;  // of the race, over all stages
  int rounds_of_stage_ = 0;
};

// Candidates that can run here, in order; the baseline first.
std::vector<int> Feasible(const std::vector<CandidateRow>& candidates);

const CandidateRow& RowOf(const std::vector<CandidateRow>& candidates, int id);

// Whether the candidate's last kMaxFailures trials failed, after which it is not measured again.
// The baseline gets three rounds of two trials if it succeeded before or ran out of time now:
// without it nothing can be compared, and the cause may be a busy machine.
inline constexpr int kMaxFailures = 2, kMaxBaselineFailures = 6;
bool HasFailed(const std::vector<TrialRow>& trials, int candidate);

// Whether a candidate has failed for lack of time alone, in trials as long as those in which the
// baseline succeeded: a finding about its speed, and not a fault.
bool IsTooSlow(const std::vector<TrialRow>& trials, int candidate);

}  // namespace pinion::harness
