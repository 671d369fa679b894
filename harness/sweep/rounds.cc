// How a round is run, and which of its trials are repeated.

#include <algorithm>
#include <utility>

#include "harness/sweep/protocol.h"

namespace pinion::harness {
namespace {

// If more than this share of a round is disturbed, disturbance is this machine's normal state, and
// repeating would double the cost without better data.
constexpr double kRepeatableShare = 1.0 / 3;

}  // namespace

Status Protocol::RunRound(const std::vector<int>& contestants, Phase phase, int round) {
  const std::vector<Slot> order =
      RoundOrder(contestants, definition_.seed, phase, round, BaselineRuns());
  const size_t before = state_.trials.size();
  const bool is_closed = IsClosed(phase, round);
  bool is_new = false;
  for (size_t i = 0; i < order.size() && !Ended(); ++i) {
    if (IsOut(order[i].candidate)) continue;
    const bool is_stored = source_.Stored().count(order[i]) > 0;
    if (is_closed && !is_stored && order[i].candidate != 0) continue;
    is_new |= !is_stored;
    PINION_TRY(RunSlot(order[i], static_cast<int>(i), order.size()));
  }
  if (Ended()) return {};
  return RepeatDisturbed(
      {state_.trials.begin() + static_cast<ptrdiff_t>(before), state_.trials.end()}, is_new);
}

// Whether a later round was run already: before a --resume with a larger budget, which did not
// suffice for all candidates. Trials of another day are not comparable with those of that round.
bool Protocol::IsClosed(Phase phase, int round) const {
  return std::any_of(source_.Stored().begin(), source_.Stored().end(), [&](const auto& stored) {
    return stored.first.phase == phase && stored.first.round > round;
  });
}

// Of a round that is not new nothing is repeated any more, for the same reason.
Status Protocol::RepeatDisturbed(const std::vector<TrialRow>& of_round, bool is_new) {
  std::vector<Slot> again;
  for (const TrialRow& trial : of_round)
    if (trial.ok && !trial.suspect.empty()) again.push_back(trial);
  if (static_cast<double>(again.size()) > kRepeatableShare * static_cast<double>(of_round.size()))
    return {};
  for (Slot slot : again) {
    if (Ended()) return {};
    // Without room in the budget there is no repetition, and the disturbed trial counts.
    slot.attempt = 1;
    const bool may_run = is_new && HasRoomFor(spending_.Expected(slot.candidate));
    if (!source_.Stored().count(slot) && !may_run) continue;
    PINION_TRY(RunSlot(slot, static_cast<int>(of_round.size()), of_round.size() + 1));
  }
  return {};
}

Status Protocol::RunSlot(const Slot& slot, int position, size_t of) {
  if (!source_.Stored().count(slot) && !Fits(slot.candidate)) {
    end_ = SweepEnd::kBudget;
    return {};
  }
  ProgressLine line;
  line.round = slot.round;
  line.rounds = slot.phase == Phase::kRace ? state_.rounds_planned : 0;
  line.phase = slot.phase;
  line.position = position + 1;
  line.trials = static_cast<int>(of);
  line.label = RowOf(candidates_, slot.candidate).label;
  line.left_s = std::max(0.0, spending_.left_s());
  PINION_ASSIGN(std::optional<TrialRow> trial, source_.Run(slot, position, line));
  if (!trial) {
    end_ = source_.WhyNone();
    if (end_ == SweepEnd::kBudget) spending_.SpendRest();
    return {};
  }
  spending_.Add(slot.candidate, trial->seconds, trial->info.once_s.value_or(0));
  PINION_TRY(TakeDisqualified(*trial));
  state_.trials.push_back(std::move(*trial));
  return slot.candidate == 0 ? TakeBaselineFailures() : Status();
}

}  // namespace pinion::harness
