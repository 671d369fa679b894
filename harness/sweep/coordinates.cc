#include "harness/sweep/coordinates.h"

#include <algorithm>
#include <random>
#include <set>

#include "harness/sweep/protocol.h"
#include "harness/sweep/state.h"

namespace pinion::harness {
namespace {

// By hand, as in RoundOrder, to give the same order with every standard library.
template <typename T>
void Shuffle(std::vector<T>& items, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random() % i]);
}

uint64_t SeedOf(uint64_t seed, int start) { return seed * 1000 + static_cast<uint64_t>(start); }

}  // namespace

Coordinates::Coordinates(const std::vector<CandidateRow>& candidates, const std::vector<int>& ids) {
  for (const CandidateRow& row : candidates) {
    if (std::find(ids.begin(), ids.end(), row.id) == ids.end()) continue;
    Point& point = points_[row.id];
    point["engine"] = row.engine;
    for (const auto& [key, value] : row.settings) point[key] = value;
  }
}

std::vector<std::string> Coordinates::Axes(int start, uint64_t seed) const {
  std::set<std::string> names;
  for (const auto& [id, point] : points_)
    for (const auto& [key, value] : point) names.insert(key);
  std::vector<std::string> axes(names.begin(), names.end());
  Shuffle(axes, SeedOf(seed, start));
  return axes;
}

int Coordinates::Start(int start, uint64_t seed) const {
  if (start == 0 || points_.size() < 2) return 0;
  std::vector<int> ids;
  for (const auto& [id, point] : points_)
    if (id != 0) ids.push_back(id);
  Shuffle(ids, SeedOf(seed, 0));
  return ids[static_cast<size_t>(start - 1) % ids.size()];
}

std::vector<int> Coordinates::Along(const std::string& axis, int id) const {
  Point here = points_.at(id);
  here.erase(axis);
  std::vector<int> line;
  for (const auto& [other, point] : points_) {
    Point there = point;
    there.erase(axis);
    if (there == here) line.push_back(other);
  }
  return line;
}

int Coordinates::BestOf(const std::vector<int>& line, const ObjectiveRace& race,
                        int otherwise) const {
  std::optional<size_t> best;
  for (const int id : line) {
    const std::optional<size_t> index = race.IndexOf(id);
    if (!index || !race.race.estimate(*index)) continue;
    const bool better = !best || *race.race.estimate(*index) > *race.race.estimate(*best);
    if (race.race.is_in(*index) && better) best = index;
  }
  return best ? race.ids[*best] : otherwise;
}

std::vector<int> DrawCandidates(const std::vector<int>& ids, int count, uint64_t seed) {
  if (ids.empty() || static_cast<size_t>(count) >= ids.size()) return ids;
  std::vector<int> others(ids.begin() + 1, ids.end());
  Shuffle(others, seed);
  others.resize(static_cast<size_t>(std::max(0, count - 1)));
  std::sort(others.begin(), others.end());
  others.insert(others.begin(), ids.front());
  return others;
}

}  // namespace pinion::harness
