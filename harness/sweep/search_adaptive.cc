// Searches that measure many candidates a little and few of them well.

#include <algorithm>
#include <numeric>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/sweep/protocol.h"

namespace pinion::harness {
namespace {

// Of each objective's best that meet in the last race: as many as can be confirmed.
constexpr size_t kFinalists = 3;
// Proposed at once: the baseline's two trials are a third of the round.
constexpr size_t kProposedAtOnce = 4;
// The search ends after so many rounds whose candidates bettered no objective's best by epsilon.
constexpr int kPatience = 10;

// The `count` best of each objective, the objectives' first ones first.
std::vector<int> BestOfEach(const Gains& gains, size_t objectives, size_t count) {
  std::vector<int> best;
  std::vector<std::vector<int>> ranked(objectives);
  for (size_t objective = 0; objective < objectives; ++objective) {
    std::vector<int>& ids = ranked[objective];
    for (const auto& [id, gain] : gains)
      if (!gain.empty()) ids.push_back(id);
    std::stable_sort(ids.begin(), ids.end(),
                     [&](int a, int b) { return gains.at(a)[objective] > gains.at(b)[objective]; });
    ids.resize(std::min(ids.size(), count));
  }
  for (size_t place = 0; place < count; ++place)
    for (const std::vector<int>& ids : ranked)
      if (place < ids.size() && std::find(best.begin(), best.end(), ids[place]) == best.end())
        best.push_back(ids[place]);
  return best;
}

std::vector<int> WithBaseline(std::vector<int> ids) {
  ids.insert(ids.begin(), 0);
  return ids;
}

CandidateGain MeanGain(int id, const std::vector<double>& gains) {
  if (gains.empty()) return {id, std::nullopt};
  return {id, std::accumulate(gains.begin(), gains.end(), 0.0) / static_cast<double>(gains.size())};
}

// The best gain of each objective so far; at least 0, the baseline's.
std::vector<double> BestGains(const Gains& gains, size_t objectives) {
  std::vector<double> best(objectives, 0);
  for (const auto& [id, gain] : gains)
    for (size_t i = 0; i < gain.size(); ++i) best[i] = std::max(best[i], gain[i]);
  return best;
}

}  // namespace

// The last stage's candidates: their gains by its races, or none if they failed.
void Protocol::TakeGains(Gains& gains) const {
  if (state_.races.empty()) return;
  for (const int id : state_.races.front().ids) {
    if (id == 0) continue;
    std::vector<double> found;
    for (const ObjectiveRace& one : state_.races) {
      const auto own = one.race.estimate(*one.IndexOf(id)), base = one.race.estimate(0);
      if (own && base && !IsOut(id)) found.push_back(*own - *base);
    }
    if (found.size() != state_.races.size()) found.clear();
    gains[id] = std::move(found);
  }
}

// The last race, for which time was held back, unless the sweep has ended for another reason.
Status Protocol::RaceFinalists(const std::vector<int>& finalists) {
  if (Ended() && end_ != SweepEnd::kBudget) return {};
  end_.reset();
  held_back_trials_ = 0;
  for (const int id : finalists) state_.dropped.erase(id);
  return RunStage(finalists, definition_.rounds, true);
}

// Successive halving: all of them are measured once, the better half twice, and so on. Of several
// objectives each keeps its better half.
Status Protocol::SearchByHalving() {
  std::vector<int> left = Feasible(candidates_);
  left.erase(left.begin());
  Prune(left);
  const size_t objectives = definition_.objectives.size();
  held_back_trials_ = 4.0 * static_cast<double>(kFinalists * objectives + 2);
  for (int rounds = 1; left.size() > kFinalists * objectives && !Ended(); rounds *= 2) {
    PINION_TRY(RunStage(WithBaseline(left), rounds, false));
    if (Ended() && end_ != SweepEnd::kBudget) return {};
    Gains gains;
    TakeGains(gains);
    const size_t half = Ended() ? kFinalists : std::max(kFinalists, left.size() / 2 / objectives);
    const std::vector<int> better = BestOfEach(gains, objectives, half);
    for (const int id : left) {
      if (IsOut(id) || std::find(better.begin(), better.end(), id) != better.end()) continue;
      if (gains[id].empty())
        state_.passed_over[id] = "not compared: the budget had no room for a round of all";
      else
        state_.dropped[id] = StrCat("in the worse half after ", Counted(round_, "round"));
    }
    left = better;
  }
  return RaceFinalists(WithBaseline(left));
}

// A few candidates a round, as the model proposes, until the budget has room for the last race
// alone, all were measured, or the model has found nothing better for a while.
Status Protocol::SearchByProposals() {
  std::vector<int> waiting = Feasible(candidates_);
  waiting.erase(waiting.begin());
  Prune(waiting);
  const size_t objectives = definition_.objectives.size();
  held_back_trials_ = 4.0 * static_cast<double>(kFinalists * objectives + 2);
  Gains gains;
  std::vector<CandidateGain> tried;
  int rounds_without = 0;
  while (!waiting.empty() && !Ended() && rounds_without < kPatience) {
    const size_t count = std::min(kProposedAtOnce, waiting.size());
    const double trials = static_cast<double>(count) + 2;
    if (!tried.empty() && !HasRoomFor(trials * spending_.mean_s())) break;
    PINION_ASSIGN(const std::vector<int> proposed,
                  source_.Propose(round_ + 1, {tried, waiting, count, definition_.seed}));
    if (proposed.empty()) {
      end_ = source_.WhyNone();
      return {};
    }
    PINION_TRY(RunStage(WithBaseline(proposed), 1, false));
    if (Ended()) break;
    const std::vector<double> before = BestGains(gains, objectives);
    TakeGains(gains);
    const std::vector<double> after = BestGains(gains, objectives);
    bool is_better = false;
    for (size_t i = 0; i < objectives; ++i) is_better |= after[i] > before[i] + definition_.epsilon;
    rounds_without = is_better ? 0 : rounds_without + 1;
    for (const int id : proposed) {
      std::erase(waiting, id);
      tried.push_back(MeanGain(id, gains[id]));
    }
  }
  if (Ended() && end_ != SweepEnd::kBudget) return {};
  for (const int id : waiting)
    state_.passed_over[id] = "not measured: the model did not propose it";
  const std::vector<int> finalists = BestOfEach(gains, objectives, kFinalists);
  for (const CandidateGain& one : tried)
    if (!IsOut(one.id) && std::find(finalists.begin(), finalists.end(), one.id) == finalists.end())
      state_.dropped[one.id] =
          StrCat("not among the best ", finalists.size(), " of ", tried.size(), " that were tried");
  return RaceFinalists(WithBaseline(finalists));
}

}  // namespace pinion::harness
