// Which candidates the protocol confirms in fresh rounds, and how it uses a budget without room for
// them.

#include <algorithm>

#include "engine/base/strings.h"
#include "harness/report/figures.h"
#include "harness/stats/estimate.h"
#include "harness/sweep/protocol.h"

namespace pinion::harness {
namespace {

// Rounds held back for a confirmation: one more than a verdict needs, since trials may run slower
// than expected.
constexpr size_t kRoundsKept = kMinSamples + 1;

}  // namespace

std::optional<int> ObjectiveRace::next() const {
  std::optional<size_t> best;
  for (size_t c = 0; c < ids.size(); ++c)
    if (ids[c] != 0 && race.is_in(c) && race.estimate(c) &&
        (!best || *race.estimate(c) > *race.estimate(*best)))
      best = c;
  return best ? std::optional(ids[*best]) : std::nullopt;
}

// The candidates that fresh rounds compare with the baseline: each objective's leader and, in a
// race that the budget cut short with the baseline in the lead, the next best. Leaders come first:
// they are claims of an improvement, which must be tested before anything else.
std::vector<int> Protocol::Challengers(bool was_cut) const {
  std::vector<int> challengers;
  const auto add = [&](const std::optional<int>& id) {
    if (!id || *id == 0 || IsOut(*id)) return;
    if (std::find(challengers.begin(), challengers.end(), *id) == challengers.end())
      challengers.push_back(*id);
  };
  // After too few rounds the lead is chance; it is confirmed only if there is no time for more.
  for (const ObjectiveRace& one : state_.races)
    if (was_cut || one.race.may_decide()) add(one.leader());
  for (const ObjectiveRace& one : state_.races)
    if (was_cut && one.leader() == 0 && !one.race.over()) add(one.next());
  return challengers;
}

// Trials of the smallest confirmation: of the current challengers, and of the baseline twice.
double Protocol::ConfirmationTrials() const {
  return static_cast<double>(kRoundsKept * (2 + std::max<size_t>(1, Challengers(true).size())));
}

size_t Protocol::RoundsThatFit(const std::vector<int>& contestants) const {
  const double round_s = spending_.RoundSeconds(contestants);
  return static_cast<size_t>(
      round_s > 0 ? std::min(std::max(0.0, spending_.left_s()) / round_s, 1e6) : 1e6);
}

// Depends only on the race's trials, not on fresh ones: choosing the number by the data that the
// interval is made of would spoil its coverage.
size_t Protocol::RoundsToConfirm() const {
  size_t rounds = 0;
  for (const ObjectiveRace& one : state_.races)
    rounds = std::max(rounds, ConfirmationRounds(one.race.scale(), definition_.epsilon));
  return rounds;
}

// The baseline and the challengers, or the first of them if there is no room for all; only the
// baseline if there is room for none.
std::vector<int> Protocol::Confirmable(bool was_cut) const {
  std::vector<int> contestants = Challengers(was_cut);
  contestants.insert(contestants.begin(), 0);
  while (contestants.size() > 2 && RoundsThatFit(contestants) < kRoundsKept) contestants.pop_back();
  if (RoundsThatFit(contestants) < kMinSamples) contestants.resize(1);
  return contestants;
}

// Measures the challengers and the baseline in fresh rounds.
Status Protocol::Confirm(bool was_cut) {
  if (Challengers(was_cut).empty()) return {};
  const std::vector<int> contestants = Confirmable(was_cut);
  if (contestants.size() == 1) {
    progress_.Note("the budget has no room to confirm the winners in fresh rounds");
    return {};
  }
  state_.confirmed.assign(contestants.begin() + 1, contestants.end());
  const int first = FirstFreshConfirmation(contestants);
  size_t stored = 0;
  for (const auto& [slot, trial] : source_.Stored())
    if (slot.phase == Phase::kConfirmation && slot.round >= first)
      stored = std::max(stored, static_cast<size_t>(slot.round - first + 1));
  const size_t rounds = std::max(stored, std::min(RoundsToConfirm(), RoundsThatFit(contestants)));
  progress_.Note(StrCat("confirming ", Counted(contestants.size() - 1, "candidate"), " in ", rounds,
                        " fresh rounds"));
  for (int round = first; round < first + static_cast<int>(rounds) && !Ended(); ++round) {
    PINION_TRY(RunRound(contestants, Phase::kConfirmation, round));
    if (!Ended()) ++state_.confirmations_done;
  }
  return {};
}

// After --resume with a larger budget the challengers may have changed. Rounds of a confirmation
// without one of them are not shared: theirs begin after those.
int Protocol::FirstFreshConfirmation(const std::vector<int>& contestants) const {
  int last_of_others = 0;
  for (const auto& [slot, trial] : source_.Stored())
    if (slot.phase == Phase::kConfirmation &&
        std::find(contestants.begin(), contestants.end(), slot.candidate) == contestants.end())
      last_of_others = std::max(last_of_others, slot.round);
  return last_of_others + 1;
}

// Spends the rest of a budget that has no room for a confirmation on the race: rounds of all still
// in or, if those do not fit, of as many challengers as fit. If trials become faster, for example
// because the machine has become quiet, there may be room for a confirmation after all.
Status Protocol::ContinueRace() {
  if (state_.races.empty()) return {};  // the calibration used up the budget
  state_.rounds_planned = definition_.rounds;
  while (rounds_of_stage_ < definition_.rounds && !Ended()) {
    std::vector<int> racing = StillRacing();
    if (racing.size() == 1 || RoundsThatFit(racing) == 0) {
      racing = Challengers(true);
      racing.insert(racing.begin(), 0);
    }
    while (racing.size() > 1 && RoundsThatFit(racing) == 0) racing.pop_back();
    if (racing.size() == 1) break;
    PINION_TRY(RaceRound(racing));
    if (Confirmable(true).size() > 1) break;
  }
  state_.rounds_planned = round_;
  return Ended() || Confirmable(true).size() == 1 ? Status() : Confirm(true);
}

}  // namespace pinion::harness
