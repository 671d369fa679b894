#pragma once

#include <cstddef>
#include <map>

#include "engine/calibrate/expert_rows.h"
#include "engine/calibrate/statistics_meter.h"
#include "engine/decoder/activation_observer.h"
#include "kernels/kernels.h"

namespace pinion {

struct LayerStatistics {
  // kExpertIn: of all tokens, which all experts together choose from.
  std::map<MatrixRole, InputStatistics> inputs;
  ExpertRows experts;
};

// Collects them for some layers while the decoder computes.
// Thread rule: See as ActivationObserver says; everything else between steps.
class StatisticsCollector : public ActivationObserver {
 public:
  // For layers [first, last) of a text of `tokens` tokens in all.
  StatisticsCollector(const kernels::Table& table, int first, int last, size_t tokens,
                      bool wants_gram);

  void See(const Worker& worker, const ObservedRows& rows) override;
  LayerStatistics Take(int layer) { return std::move(layers_.at(layer)); }

 private:
  const size_t tokens_;
  std::map<int, LayerStatistics> layers_;
  StatisticsMeter meter_;
};

}  // namespace pinion
