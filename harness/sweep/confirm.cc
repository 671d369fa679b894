// Whom the protocol confirms in fresh rounds, and what it does with a budget that has no room for
// that.

#include <algorithm>

#include "engine/base/strings.h"
#include "harness/stats/estimate.h"
#include "harness/sweep/protocol.h"

namespace pinion::harness {
namespace {

// Kept for a confirmation: one more than tell, or a slow spell leaves one too few.
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

// Whom fresh rounds are to compare with the baseline: each objective's leader, and in a race that
// the budget cut short whoever comes next where the baseline leads it. Claims come first, which
// must be tested before anything else.
std::vector<int> Protocol::Challengers(bool was_cut) const {
  std::vector<int> challengers;
  const auto add = [&](const std::optional<int>& id) {
    if (!id || *id == 0 || IsOut(*id)) return;
    if (std::find(challengers.begin(), challengers.end(), *id) == challengers.end())
      challengers.push_back(*id);
  };
  // Who leads after a few rounds is chance; it is confirmed only where there is no time for more.
  for (const ObjectiveRace& one : state_.races)
    if (was_cut || one.race.may_decide()) add(one.leader());
  for (const ObjectiveRace& one : state_.races)
    if (was_cut && one.leader() == 0 && !one.race.over()) add(one.next());
  return challengers;
}

// Of the smallest confirmation: whoever would be confirmed now, and the baseline twice.
double Protocol::ConfirmationTrials() const {
  return static_cast<double>(kRoundsKept * (2 + std::max<size_t>(1, Challengers(true).size())));
}

size_t Protocol::RoundsThatFit(const std::vector<int>& contestants) const {
  const double round_s = spending_.RoundSeconds(contestants);
  return static_cast<size_t>(
      round_s > 0 ? std::min(std::max(0.0, spending_.left_s()) / round_s, 1e6) : 1e6);
}

// Follows from what was measured before, so that the interval keeps its coverage.
size_t Protocol::RoundsToConfirm() const {
  size_t rounds = 0;
  for (const ObjectiveRace& one : state_.races)
    rounds = std::max(rounds, ConfirmationRounds(one.race.scale(), definition_.epsilon));
  return rounds;
}

// The baseline and the challengers, or the first of them where there is no room for all; the
// baseline alone where there is none for anybody.
std::vector<int> Protocol::Confirmable(bool was_cut) const {
  std::vector<int> contestants = Challengers(was_cut);
  contestants.insert(contestants.begin(), 0);
  while (contestants.size() > 2 && RoundsThatFit(contestants) < kRoundsKept) contestants.pop_back();
  if (RoundsThatFit(contestants) < kMinSamples) contestants.resize(1);
  return contestants;
}

// Fresh rounds of the challengers and the baseline.
Status Protocol::Confirm(bool was_cut) {
  if (Challengers(was_cut).empty()) return {};
  const std::vector<int> contestants = Confirmable(was_cut);
  if (contestants.size() == 1) {
    progress_.Note("no room in the budget to confirm the winners in fresh rounds");
    return {};
  }
  state_.confirmed.assign(contestants.begin() + 1, contestants.end());
  const int first = FirstFreshConfirmation(contestants);
  size_t stored = 0;
  for (const auto& [slot, trial] : source_.Stored())
    if (slot.phase == Phase::kConfirmation && slot.round >= first)
      stored = std::max(stored, static_cast<size_t>(slot.round - first + 1));
  const size_t rounds = std::max(stored, std::min(RoundsToConfirm(), RoundsThatFit(contestants)));
  progress_.Note(StrCat("confirming ", contestants.size() - 1, " of the candidates in ", rounds,
                        " fresh rounds"));
  for (int round = first; round < first + static_cast<int>(rounds) && !Ended(); ++round) {
    PINION_TRY(RunRound(contestants, Phase::kConfirmation, round));
    if (!Ended()) ++state_.confirmations_done;
  }
  return {};
}

// A confirmation of others, from before the budget grew, keeps its rounds to itself.
int Protocol::FirstFreshConfirmation(const std::vector<int>& contestants) const {
  int last_of_others = 0;
  for (const auto& [slot, trial] : source_.Stored())
    if (slot.phase == Phase::kConfirmation &&
        std::find(contestants.begin(), contestants.end(), slot.candidate) == contestants.end())
      last_of_others = std::max(last_of_others, slot.round);
  return last_of_others + 1;
}

// What is left where nobody can be confirmed goes into the race: rounds of all who are in or, where
// those do not fit, of as many challengers as do. Trials that take less time than those before, as
// on a machine that has become quiet, can make room for a confirmation after all.
Status Protocol::RaceOn() {
  if (state_.races.empty()) return {};  // the calibration took all of it
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
