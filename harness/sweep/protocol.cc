#include "harness/sweep/protocol.h"

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/results/figures.h"
#include "harness/stats/estimate.h"
#include "harness/stats/rules.h"
#include "harness/stats/text.h"
#include "harness/stats/verdict.h"
#include "harness/sweep/constraints.h"
#include "harness/sweep/score.h"

namespace pinion::harness {
namespace {

// Pairs of the baseline against itself at the start: with the baseline's pairs of the race they are
// enough for a floor. They take at most a tenth of the budget.
constexpr int kCalibrationPairs = 3;
constexpr double kCalibrationShare = 0.10;

struct Failures {
  int in_a_row = 0;      // ending with the last trial
  int out_of_time = 0;   // in a row as well, for lack of time
  bool has_run = false;  // some trial succeeded
};

Failures LastFailures(const std::vector<TrialRow>& trials, int candidate) {
  Failures failures;
  for (const TrialRow& trial : trials) {
    if (trial.candidate != candidate) continue;
    failures.in_a_row = trial.ok ? 0 : failures.in_a_row + 1;
    const bool out_of_time = !trial.ok && trial.info.out_of_time_s;
    failures.out_of_time = out_of_time ? failures.out_of_time + 1 : 0;
    failures.has_run |= trial.ok;
  }
  return failures;
}

}  // namespace

const CandidateRow& RowOf(const std::vector<CandidateRow>& candidates, int id) {
  return *std::find_if(candidates.begin(), candidates.end(),
                       [&](const CandidateRow& row) { return row.id == id; });
}

std::optional<size_t> ObjectiveRace::IndexOf(int id) const {
  const auto found = std::find(ids.begin(), ids.end(), id);
  if (found == ids.end()) return std::nullopt;
  return static_cast<size_t>(found - ids.begin());
}

std::optional<int> ObjectiveRace::leader() const {
  return race.leader() ? std::optional(ids[*race.leader()]) : std::nullopt;
}

std::vector<int> Feasible(const std::vector<CandidateRow>& candidates) {
  std::vector<int> feasible;
  for (const CandidateRow& row : candidates)
    if (row.infeasible.empty()) feasible.push_back(row.id);
  return feasible;
}

bool HasFailed(const std::vector<TrialRow>& trials, int candidate) {
  const Failures last = LastFailures(trials, candidate);
  const bool may_recover = candidate == 0 && (last.has_run || last.out_of_time > 0);
  return last.in_a_row >= (may_recover ? kMaxBaselineFailures : kMaxFailures);
}

bool IsTooSlow(const std::vector<TrialRow>& trials, int candidate) {
  return candidate != 0 && LastFailures(trials, 0).has_run &&
         LastFailures(trials, candidate).out_of_time >= kMaxFailures;
}

SweepEnd TrialSource::WhyNone() const { return SweepEnd::kInterrupted; }

Result<std::vector<int>> TrialSource::Propose(int round, const ProposalQuestion&) {
  std::vector<int> ids;
  for (const auto& [slot, trial] : Stored())
    if (slot.phase == Phase::kRace && slot.round == round && slot.candidate != 0 &&
        std::find(ids.begin(), ids.end(), slot.candidate) == ids.end())
      ids.push_back(slot.candidate);
  return ids;
}

Protocol::Protocol(const Definition& definition, const std::vector<CandidateRow>& candidates,
                   const Forecasts& forecasts, TrialSource& source, Progress& progress)
    : definition_(definition),
      candidates_(candidates),
      forecasts_(forecasts),
      source_(source),
      progress_(progress),
      spending_(definition.budget_s, BaselineRuns()) {
  state_.rounds_planned = definition.rounds;
}

// In a round. Two configurations are compared by the order of their trials alone (pair.h), without
// a floor from the baseline beside itself.
int Protocol::BaselineRuns() const { return IsPair() ? 1 : 2; }

Result<SweepEnd> Protocol::Run() {
  PINION_TRY(Calibrate());
  if (!Ended()) PINION_TRY(Search());
  // A race that the budget cut short is still confirmed: RunStage held back time for that.
  const bool was_cut = end_ == SweepEnd::kBudget;
  if (was_cut) end_.reset();
  if (!Ended() && !IsPair()) PINION_TRY(Confirm(was_cut));
  if (!Ended() && !IsPair() && was_cut && state_.confirmed.empty()) PINION_TRY(ContinueRace());
  if (was_cut && !BaselineHasRun())
    return Fail(ErrorCode::kFailed,
                StrCat("the budget of ", FormatSeconds(definition_.budget_s),
                       " was spent before the defaults had run once (", state_.trials.back().reason,
                       "): raise --budget, or see ", state_.trials.back().log_path,
                       " in the sweep's folder"));
  return end_.value_or(was_cut ? SweepEnd::kBudget : SweepEnd::kDone);
}

Status Protocol::Calibrate() {
  if (HasNoCalibration()) return {};
  if (IsPair()) return FitTrials();
  for (int pair = 1; pair <= kCalibrationPairs && !Ended(); ++pair) {
    const double after_s = spending_.spent_s() + 2 * spending_.mean_s();
    const bool enough = after_s > kCalibrationShare * definition_.budget_s;
    if (pair > 1 && enough && BaselineHasRun()) break;
    PINION_TRY(RunRound({0}, Phase::kCalibration, pair));
    if (!Ended()) ++state_.calibrations_done;
  }
  return {};
}

// Trials of the first side alone, until one has run: they tell how long a trial has to be.
Status Protocol::FitTrials() {
  for (int trial = 1; !BaselineHasRun() && !Ended(); ++trial)
    PINION_TRY(RunRound({0}, Phase::kCalibration, trial));
  return {};
}

// A recording may have rounds but no calibration; then there is none to run.
bool Protocol::HasNoCalibration() const {
  const auto has = [&](Phase phase) {
    return std::any_of(source_.Stored().begin(), source_.Stored().end(),
                       [phase](const auto& stored) { return stored.first.phase == phase; });
  };
  return has(Phase::kRace) && !has(Phase::kCalibration);
}

// Rounds among `contestants` (the baseline first) until each objective's race is over,
// `most_rounds` are done or the rest of the budget is needed for the confirmation.
Status Protocol::RunStage(const std::vector<int>& contestants, int most_rounds, bool drops) {
  state_.races.clear();
  state_.race_over = false;
  for (const Objective objective : definition_.objectives)
    state_.races.push_back(
        {objective, contestants,
         Race(contestants.size(), {.epsilon = definition_.epsilon, .drops = drops})});
  rounds_of_stage_ = 0;
  while (rounds_of_stage_ < most_rounds && !Ended()) {
    const std::vector<int> racing = StillRacing();
    const bool alone = racing.size() == 1 && contestants.size() > 1;
    if ((drops && AllOver()) || alone) {
      state_.race_over = true;
      return {};
    }
    if (rounds_of_stage_ > 0 && !HasRoomFor(spending_.RoundSeconds(racing))) {
      end_ = SweepEnd::kBudget;
      break;
    }
    PINION_TRY(RaceRound(racing));
  }
  if (end_ == SweepEnd::kBudget) state_.rounds_planned = round_;
  // A race also counts as decided after all rounds of the definition, unless they are too few for
  // a verdict.
  state_.race_over = AllOver() || (!Ended() && state_.rounds_done >= static_cast<int>(kMinSamples));
  return {};
}

Status Protocol::RaceRound(const std::vector<int>& racing) {
  PINION_TRY(RunRound(racing, Phase::kRace, ++round_));
  if (Ended()) return {};
  ++rounds_of_stage_;
  ++state_.rounds_done;
  ScoreRound(round_);
  RecordDropped();
  AnnouncePlan();
  return {};
}

// The baseline, and every candidate still in a race that is not over.
std::vector<int> Protocol::StillRacing() const {
  std::vector<int> racing = {0};
  for (const int id : state_.races.front().ids) {
    if (id == 0 || IsOut(id)) continue;
    for (const ObjectiveRace& one : state_.races) {
      if (one.race.over() || !one.race.is_in(*one.IndexOf(id))) continue;
      racing.push_back(id);
      break;
    }
  }
  return racing;
}

bool Protocol::AllOver() const {
  return !state_.races.empty() &&
         std::all_of(state_.races.begin(), state_.races.end(),
                     [](const ObjectiveRace& one) { return one.race.over(); });
}

void Protocol::ScoreRound(int round) {
  for (ObjectiveRace& one : state_.races) {
    if (one.race.over()) continue;
    for (size_t c = 0; c < one.ids.size(); ++c)
      if (IsOut(one.ids[c])) one.race.Withdraw(c);
    ScoredRound scores;
    for (const auto& [candidate, score] :
         ScoresInOrder(state_.trials, {Phase::kRace, round}, one.objective, definition_))
      if (const auto c = one.IndexOf(candidate)) scores.push_back({*c, score});
    one.race.AddRound(scores);
  }
}

// Records the candidates that every objective's race has dropped, with the leader and the round of
// the last one.
void Protocol::RecordDropped() {
  for (const int id : state_.races.front().ids) {
    if (id == 0 || IsOut(id)) continue;
    const ObjectiveRace* last = nullptr;
    bool in = false;
    for (const ObjectiveRace& one : state_.races) {
      in |= one.race.is_in(*one.IndexOf(id));
      last = &one;
    }
    if (in) state_.dropped.erase(id);  // back in the race because the leader failed
    if (in || state_.dropped.count(id) || !last->leader()) continue;
    const bool worse = last->race.status(*last->IndexOf(id)) == RaceStatus::kWorse;
    const std::string& leader = RowOf(candidates_, *last->leader()).label;
    state_.dropped[id] =
        StrCat(worse ? "worse than " : "not better than ", leader, " by more than ",
               Percent(definition_.epsilon), " after ", Counted(last->race.rounds(), "round"));
  }
}

bool Protocol::IsOut(int candidate) const {
  return state_.disqualified.count(candidate) > 0 || HasFailed(state_.trials, candidate);
}

// Everything is compared with the baseline, and it is kept if nothing is better: without
// it there is nothing to recommend.
Status Protocol::TakeDisqualified(const TrialRow& trial) {
  const auto why = WhyDisqualified(definition_.constraints, {trial}, trial.candidate);
  if (!why) return {};
  if (trial.candidate == 0)
    return Fail(ErrorCode::kFailed,
                StrCat("the defaults are ", *why, "; start from options that keep it, for example ",
                       "with --kv-cache-space, or raise the constraint"));
  if (state_.disqualified.emplace(trial.candidate, *why).second)
    progress_.Note(StrCat(RowOf(candidates_, trial.candidate).label, ": ", *why));
  return {};
}

bool Protocol::Fits(int candidate) const {
  return state_.trials.empty() || spending_.Expected(candidate) <= spending_.left_s();
}

// Whether the race may take `seconds` more: the smallest confirmation must still fit after it, and
// the last race of a coordinate search.
bool Protocol::HasRoomFor(double seconds) const {
  const double held_back_s = (ConfirmationTrials() + held_back_trials_) * spending_.mean_s();
  return seconds + held_back_s <= spending_.left_s();
}

bool Protocol::BaselineHasRun() const {
  return std::any_of(state_.trials.begin(), state_.trials.end(),
                     [](const TrialRow& trial) { return trial.candidate == 0 && trial.ok; });
}

// If the baseline fails for good, there is nothing left to compare with, and the sweep ends.
// Earlier trials stay.
Status Protocol::TakeBaselineFailures() {
  if (!HasFailed(state_.trials, 0)) return {};
  const TrialRow& last = state_.trials.back();
  const Failures failures = LastFailures(state_.trials, 0);
  const std::string why = StrCat("the defaults failed ", failures.in_a_row, " times in a row (",
                                 last.reason, "); see ", last.log_path);
  if (!failures.has_run) return Fail(ErrorCode::kFailed, why);
  progress_.Note(why);
  end_ = SweepEnd::kBaselineFails;
  return {};
}

void Protocol::AnnouncePlan() {
  if (round_ == 3 || (round_ < 3 && AllOver())) AnnounceFloors();
  if (round_ != 1) return;
  const double round_s = spending_.RoundSeconds(StillRacing());
  const double spare_s = spending_.left_s() - ConfirmationTrials() * spending_.mean_s();
  const double fit = round_s > 0 ? std::clamp(spare_s / round_s, 0.0, 1e6) : 1e6;
  progress_.Note(StrCat("a round takes ", FormatSeconds(round_s), ": ",
                        std::min(definition_.rounds, 1 + static_cast<int>(fit)), " of at most ",
                        definition_.rounds, " rounds fit the budget of ",
                        FormatSeconds(definition_.budget_s),
                        IsPair()      ? ""
                        : spare_s < 0 ? RoomToConfirm()
                                      : " with their confirmation"));
}

// The plan's note on the confirmation if the budget has no room for the smallest one of all
// leaders.
std::string Protocol::RoomToConfirm() const {
  const size_t room = Confirmable(true).size() - 1, all = Challengers(true).size();
  const double needed_s = spending_.spent_s() + ConfirmationTrials() * spending_.mean_s();
  const std::string needed = StrCat(" needs --budget ", std::ceil(needed_s / 60), "m");
  if (room == 0) return StrCat(" without a confirmation, which", needed);
  if (room == all) return " with their confirmation";
  return StrCat(" with the confirmation of ", room, " of ", Counted(all, "leader"), "; for all it",
                needed);
}

void Protocol::AnnounceFloors() {
  for (const ObjectiveRace& one : state_.races) {
    const std::vector<double> differences =
        BaselineDifferences(state_.trials, one.objective, definition_);
    const size_t rounds = RoundsFor(Comparisons(std::max<size_t>(1, Challengers(true).size())));
    const double floor = NoiseFloor(differences, rounds);
    if (floor <= 0) continue;  // too few pairs
    progress_.Note(StrCat(Name(one.objective), ": differences below about ", Percent(floor),
                          " cannot be resolved here with ", rounds,
                          " rounds (autocorrelation of the noise ",
                          Percent(Lag1Autocorrelation(differences)), ")"));
  }
}

}  // namespace pinion::harness
