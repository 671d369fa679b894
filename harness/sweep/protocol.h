#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/space/definition.h"
#include "harness/stats/race.h"
#include "harness/store/store.h"
#include "harness/sweep/forecast.h"
#include "harness/sweep/progress.h"
#include "harness/sweep/schedule.h"

namespace pinion::harness {

enum class SweepEnd {
  kDone,           // all that was to be done
  kBudget,         // all that fitted the budget
  kInterrupted,    // the source ended; everything so far is stored
  kBaselineFails,  // the baseline, which had run, fails again and again; everything so far is
                   // stored
};

constexpr bool IsFinished(SweepEnd end) {
  return end == SweepEnd::kDone || end == SweepEnd::kBudget;
}

// Where trials come from: an engine, a recording, or what was stored. The protocol below sees
// nothing else, so that what is proven on recordings holds for engines.
class TrialSource {
 public:
  virtual ~TrialSource() = default;
  // The trial of a slot, measured or looked up. nullopt: there is none, stop here; WhyNone says
  // why.
  virtual Result<std::optional<TrialRow>> Run(const Slot& slot, int position,
                                              const ProgressLine& line) = 0;
  // kInterrupted (also at the end of what was stored), or kBudget: spent in the midst of a trial.
  virtual SweepEnd WhyNone() const;
  // Trials that are there already and cost nothing more.
  virtual const std::map<Slot, TrialRow>& Stored() const = 0;
};

// One objective's race: who is in, who left and why.
struct ObjectiveRace {
  Objective objective = Objective::kThroughput;
  std::vector<int> ids;  // contestants of the race, candidate ids; [0] is the baseline's
  Race race;

  std::optional<size_t> IndexOf(int id) const;
  std::optional<int> leader() const;  // candidate id
  std::optional<int> next() const;    // the best by its estimate of those in, but the baseline
};

// What an experiment came to.
struct ProtocolState {
  std::vector<TrialRow> trials;      // in the order in which they were run
  std::vector<ObjectiveRace> races;  // of the last stage, one per objective
  // Candidates that left and why: "worse than default by more than 2 % after 3 rounds".
  std::map<int, std::string> left;
  std::map<int, std::string> disqualified;  // candidates that broke a constraint, and how
  // Candidates that were not measured and why: predictions say that they cannot win, or that others
  // were more promising and the budget ended with those.
  std::map<int, std::string> pruned, passed_over;
  int rounds_planned = 0;
  int calibrations_done = 0, rounds_done = 0, confirmations_done = 0;  // whole rounds
  bool race_over = false;                                              // decided, not cut off
  std::vector<int> confirmed;  // whom the confirmation was for; without the baseline
};

// The experiment, whatever is measured: the baseline against itself, races in randomised complete
// rounds, and the winners against the baseline in fresh ones. All that it decides follows from the
// definition, the candidates and the trials, so that the same trials give the same decisions.
class Protocol {
 public:
  // `forecasts`: whom to measure first, and whom not; empty: everybody, in any order.
  Protocol(const Definition& definition, const std::vector<CandidateRow>& candidates,
           const Forecasts& forecasts, TrialSource& source, Progress& progress);

  // Errors: the source's, and a baseline that has never run.
  Result<SweepEnd> Run();
  const ProtocolState& state() const { return state_; }
  const Spending& spending() const { return spending_; }

 private:
  Status Calibrate();
  Status Search();
  Status SearchByCoordinates();
  Status RaceByPromise(std::vector<int> waiting);
  void Prune(std::vector<int>& waiting);
  std::vector<int> Leaders() const;
  size_t PlacesBeside(const std::vector<int>& contestants) const;
  Status RunStage(const std::vector<int>& contestants, int most_rounds, bool drops);
  Status RaceRound(const std::vector<int>& racing);
  Status Confirm(bool was_cut);
  Status RaceOn();

  Status RunRound(const std::vector<int>& contestants, Phase phase, int round);
  Status RepeatDisturbed(const std::vector<TrialRow>& of_round);
  Status RunSlot(const Slot& slot, int position, size_t of);
  void ScoreRound(int round);
  bool IsOut(int candidate) const;  // it fails, or broke a constraint
  bool BaselineHasRun() const;
  Status TakeBaselineFailures();
  Status TakeDisqualified(const TrialRow& trial);
  bool Fits(int candidate) const;
  bool HasRoomFor(double seconds) const;
  std::vector<int> Challengers(bool was_cut) const;
  std::vector<int> Confirmable(bool was_cut) const;
  double ConfirmationTrials() const;
  size_t RoundsThatFit(const std::vector<int>& contestants) const;
  size_t RoundsToConfirm() const;
  std::vector<int> StillRacing() const;
  bool AllOver() const;
  bool WasBegunWithoutCalibration() const;
  int FirstFreshConfirmation(const std::vector<int>& contestants) const;
  void TakeLeavers();
  void TellPlan();
  std::string RoomToConfirm() const;
  void TellFloors();
  bool Ended() const { return end_.has_value(); }

  const Definition& definition_;
  const std::vector<CandidateRow>& candidates_;
  const Forecasts& forecasts_;
  TrialSource& source_;
  Progress& progress_;
  Spending spending_;
  ProtocolState state_;
  std::optional<SweepEnd> end_;  // why nothing more is run
  double held_back_trials_ = 0;  // that the race must leave room for, besides the confirmation
  int round_ = 0;                // of the race, over all stages
  int rounds_of_stage_ = 0;
};

// Candidates that can run here, in order; the baseline first.
std::vector<int> Feasible(const std::vector<CandidateRow>& candidates);

const CandidateRow& RowOf(const std::vector<CandidateRow>& candidates, int id);

// In a failed trial's info: the limit in seconds that its load did not come far enough in.
inline constexpr char kOutOfTime[] = "out_of_time_s";

// Whether the candidate's last kMaxFailures trials failed: it is then left out. A baseline has
// three rounds of two trials where it has run before, or ran out of time now: without it nothing
// can be compared, and a busy machine may be what fails.
inline constexpr int kMaxFailures = 2, kMaxBaselineFailures = 6;
bool HasFailed(const std::vector<TrialRow>& trials, int candidate);

}  // namespace pinion::harness
