#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/store/store.h"

namespace pinion::harness {

struct ObjectiveRace;

// The candidates as points of a grid, to find those that differ in only one setting.
class Coordinates {
 public:
  using Point = std::map<std::string, std::string>;  // settings that differ, and the engine

  Coordinates(const std::vector<CandidateRow>& candidates, const std::vector<int>& ids);

  // The settings that any candidate changes, in an order drawn from (seed, start).
  std::vector<std::string> Axes(int start, uint64_t seed) const;
  // The first point of a descent: the baseline if `start` is 0, else a random point.
  int Start(int start, uint64_t seed) const;
  // `id` and all candidates that differ from it in this setting alone.
  std::vector<int> Along(const std::string& axis, int id) const;
  // The best of `line` in the race; `otherwise` if none was measured.
  int BestOf(const std::vector<int>& line, const ObjectiveRace& race, int otherwise) const;

  const std::map<int, Point>& points() const { return points_; }

 private:
  std::map<int, Point> points_;
};

// At most `count` of the candidates: always the first one (the baseline), the others drawn by seed.
std::vector<int> DrawCandidates(const std::vector<int>& ids, int count, uint64_t seed);

}  // namespace pinion::harness
