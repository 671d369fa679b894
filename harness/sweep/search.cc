// Which candidates the protocol races, and in which order.

#include <algorithm>

#include "engine/base/strings.h"
#include "harness/sweep/coordinates.h"
#include "harness/sweep/protocol.h"

namespace pinion::harness {

Status Protocol::Search() {
  std::vector<int> contestants = Feasible(candidates_);
  switch (definition_.strategy) {
    case Strategy::kCoordinate:
      return SearchByCoordinates();
    case Strategy::kHalving:
      return SearchByHalving();
    case Strategy::kTpe:
      return SearchByProposals();
    case Strategy::kGrid:
    case Strategy::kPair:
      return RunStage(contestants, definition_.rounds, false);
    case Strategy::kRandom:
      contestants = DrawCandidates(contestants, definition_.random_points, definition_.seed);
      break;
    case Strategy::kRacing:
      break;
  }
  return RaceByPromise({contestants.begin() + 1, contestants.end()});
}

// Races all candidates at once if there are no predictions or the budget has room for all. Else the
// most promising first, and then the next ones against the leaders so far, while there is room.
Status Protocol::RaceByPromise(std::vector<int> waiting) {
  waiting = ByPromise(std::move(waiting), forecasts_, definition_.objectives);
  Prune(waiting);
  std::vector<int> leaders = {0};
  while (true) {
    const auto admitted = static_cast<ptrdiff_t>(
        std::min(waiting.size(), std::max<size_t>(1, PlacesBeside(leaders))));
    std::vector<int> contestants = leaders;
    contestants.insert(contestants.end(), waiting.begin(), waiting.begin() + admitted);
    waiting.erase(waiting.begin(), waiting.begin() + admitted);
    PINION_TRY(RunStage(contestants, definition_.rounds, true));
    if (Ended()) break;
    Prune(waiting);
    leaders = Leaders();
    if (waiting.empty() || PlacesBeside(leaders) == 0) break;
  }
  if (Ended() && end_ != SweepEnd::kBudget) return {};
  for (const int id : waiting)
    state_.passed_over[id] = "not measured: the budget had room only for more promising candidates";
  return {};
}

// The leaders of the races; the baseline first.
std::vector<int> Protocol::Leaders() const {
  std::vector<int> leaders = {0};
  for (const ObjectiveRace& one : state_.races)
    if (const auto id = one.leader();
        id && std::find(leaders.begin(), leaders.end(), *id) == leaders.end())
      leaders.push_back(*id);
  return leaders;
}

// How many more candidates can race with `contestants` and leave enough budget to confirm, if the
// race takes the usual number of rounds.
size_t Protocol::PlacesBeside(const std::vector<int>& contestants) const {
  const double trial_s = spending_.mean_s();
  if (forecasts_.empty() || trial_s <= 0) return candidates_.size();
  const double trials = spending_.left_s() / trial_s - ConfirmationTrials();
  const double taken = static_cast<double>(contestants.size()) + 1;  // the baseline runs twice
  return static_cast<size_t>(std::max(0.0, trials / kUsualRounds - taken));
}

// Removes candidates that cannot win any more.
void Protocol::Prune(std::vector<int>& waiting) {
  if (forecasts_.empty()) return;
  const auto proven = BestProven(state_.trials, forecasts_, definition_.objectives, definition_);
  std::erase_if(waiting, [&](int id) {
    const auto why = WhyHopeless(id, forecasts_, proven, definition_.objectives, candidates_);
    if (!why) return false;
    state_.pruned[id] = *why;
    progress_.Note(StrCat(RowOf(candidates_, id).label, ": ", *why));
    return true;
  });
}

// Coordinate descent: races along one axis at a time, with the other settings at the best values so
// far, until no axis improves; from the baseline, and again from random points. The best of each
// descent meet in a last race.
Status Protocol::SearchByCoordinates() {
  std::vector<int> ids = Feasible(candidates_);
  ids.erase(ids.begin());
  Prune(ids);
  ids.insert(ids.begin(), 0);
  const Coordinates space(candidates_, ids);
  std::vector<int> finalists = {0};
  // Leave room for the last race: four rounds of at most restarts + 3 trials.
  held_back_trials_ = 4.0 * (definition_.restarts + 3);
  for (int start = 0; start <= definition_.restarts && !Ended(); ++start) {
    int best = space.Start(start, definition_.seed);
    bool moved = true;
    while (moved && !Ended()) {
      moved = false;
      for (const std::string& axis : space.Axes(start, definition_.seed)) {
        const std::vector<int> line = space.Along(axis, best);
        if (line.size() < 2 || Ended()) continue;
        std::vector<int> contestants = {0};
        for (const int id : line)
          if (id != 0) contestants.push_back(id);
        PINION_TRY(RunStage(contestants, definition_.rounds, true));
        const int found = space.BestOf(line, state_.races.back(), best);
        moved |= found != best;
        best = found;
      }
    }
    if (std::find(finalists.begin(), finalists.end(), best) == finalists.end())
      finalists.push_back(best);
  }
  return RaceFinalists(finalists);
}

}  // namespace pinion::harness
