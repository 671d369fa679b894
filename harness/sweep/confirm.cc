// Which candidates the protocol confirms in fresh rounds, and how it uses a budget without room for
// them.

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/stats/rules.h"
#include "harness/sweep/protocol.h"

namespace pinion::harness {

std::optional<int> ObjectiveRace::runner_up() const {
  const auto second = race.RunnerUp();
  return second ? std::optional(ids[*second]) : std::nullopt;
}

// The candidates that fresh rounds compare with the baseline and with each other, at most
// kMostConfirmed: each objective's leader, then the runners-up, which no race has told from their
// leader. Leaders come first: they are claims of an improvement. A race that the baseline leads
// asks for its runner-up only if the budget cut it short.
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
  for (const bool leads : {true, false})
    for (const ObjectiveRace& one : state_.races)
      if ((one.leader() != 0) == leads &&
          (leads ? was_cut || one.race.may_decide() : was_cut && !one.race.over()))
        add(one.runner_up());
  challengers.resize(std::min(challengers.size(), kMostConfirmed));
  return challengers;
}

size_t Protocol::Comparisons(size_t challengers) const {
  return challengers * definition_.objectives.size();
}

// The trials that a confirmation of so many challengers may take, in trials of the mean time:
// theirs and the baseline's two in each round, and a reserve for a machine that becomes slower.
double Protocol::TrialsKept(size_t rounds, size_t challengers) const {
  const auto of_round = static_cast<double>(2 + challengers);
  const double trials = static_cast<double>(rounds) * of_round;
  return std::max(trials + kSpareRounds * of_round, spending_.AtMost(trials));
}

// Of the smallest confirmation of the leaders so far. Of a pair, every round counts as much.
double Protocol::ConfirmationTrials() const {
  if (IsPair()) return 0;
  const size_t count = std::clamp<size_t>(Leaders().size() - 1, 1, kMostConfirmed);
  return TrialsKept(LeastRoundsFor(Comparisons(count)), count);
}

size_t Protocol::RoundsThatFit(const std::vector<int>& contestants) const {
  const double round_s = spending_.RoundSeconds(contestants);
  return static_cast<size_t>(
      round_s > 0 ? std::min(std::max(0.0, spending_.left_s()) / round_s, 1e6) : 1e6);
}

// The baseline and the challengers, or the first of them if there is no room for all; only the
// baseline if there is room for none. Runners-up take part only if all the rounds fit.
std::vector<int> Protocol::Confirmable(bool was_cut) const {
  std::vector<int> contestants = Challengers(was_cut);
  contestants.insert(contestants.begin(), 0);
  const size_t leaders = Leaders().size() - 1;
  const auto fit = [&] {
    const size_t challengers = contestants.size() - 1, comparisons = Comparisons(challengers);
    const size_t rounds =
        challengers > leaders ? RoundsFor(comparisons) : LeastRoundsFor(comparisons);
    const double kept = TrialsKept(rounds, challengers) / static_cast<double>(2 + challengers);
    return kept * spending_.RoundSeconds(contestants) <= spending_.left_s();
  };
  while (contestants.size() > 2 && !fit()) contestants.pop_back();
  if (RoundsThatFit(contestants) < LeastRoundsFor(Comparisons(1))) contestants.resize(1);
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
  // The number depends on no fresh trial: choosing it by the data that the intervals are made of
  // would spoil their coverage.
  const size_t wanted = RoundsFor(Comparisons(contestants.size() - 1));
  const size_t rounds = std::max(stored, std::min(wanted, RoundsThatFit(contestants)));
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
