#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/calibrate/statistics.h"
#include "engine/run/start.h"

namespace pinion {

// Statistics of the inputs of a running model's matrices over a calibration text, layer by layer.
// One pass over the text covers as many layers as memory has room for.
class Calibration {
 public:
  // windows: token ids, each at most as long as the model's largest step. The model outlives it.
  Calibration(StartedModel& model, std::vector<std::vector<int32_t>> windows, bool wants_gram);

  // Each layer once.
  LayerStatistics Take(int layer);

 private:
  void Collect(int first);
  int LastAtOnce(int first) const;
  uint64_t StatisticsBytes(int layer) const;
  void TellOfSeldomExperts(int first, int last) const;

  StartedModel& model_;
  const std::vector<std::vector<int32_t>> windows_;
  const bool wants_gram_;
  size_t tokens_ = 0;
  std::map<int, LayerStatistics> layers_;
};

}  // namespace pinion
