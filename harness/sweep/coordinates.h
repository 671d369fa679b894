#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/store/store.h"

namespace pinion::harness {

struct ObjectiveRace;

// The candidates as points of a grid: which of them differ in one setting alone.
class Coordinates {
 public:
  Coordinates(const std::vector<CandidateRow>& candidates, const std::vector<int>& ids);

  // Settings that some candidate changes, in an order drawn from (seed, start).
  std::vector<std::string> Axes(int start, uint64_t seed) const;
  // Where a descent starts: the base first, then points drawn at random.
  int Start(int start, uint64_t seed) const;
  // All candidates that differ from `id` in this setting or not at all, `id` among them.
  std::vector<int> Along(const std::string& axis, int id) const;
  // Who of `line` did best in the race; `otherwise` where none was measured.
  int BestOf(const std::vector<int>& line, const ObjectiveRace& race, int otherwise) const;

 private:
  using Point = std::map<std::string, std::string>;
  std::map<int, Point> points_;
};

// At most `count` of the candidates, the first one (the baseline) always, the others drawn by seed.
std::vector<int> DrawCandidates(const std::vector<int>& ids, int count, uint64_t seed);

}  // namespace pinion::harness
