#include "engine/calibrate/statistics.h"

namespace pinion {

StatisticsCollector::StatisticsCollector(const kernels::Table& table, int first, int last,
                                         size_t tokens, bool wants_gram)
    : tokens_(tokens), meter_(table, wants_gram) {
  for (int layer = first; layer < last; ++layer)
    for (const MatrixRole role :
         {MatrixRole::kQkv, MatrixRole::kQueryUp, MatrixRole::kLatentUp, MatrixRole::kO,
          MatrixRole::kMlpIn, MatrixRole::kDown, MatrixRole::kExpertIn})
      layers_[layer].inputs[role];
}

void StatisticsCollector::See(const Worker& worker, const ObservedRows& rows) {
  const auto layer = layers_.find(rows.layer);
  if (layer == layers_.end()) return;
  if (rows.plan) layer->second.experts.See(worker, rows);
  if (rows.role == MatrixRole::kExpertDown) return;
  const auto at = [&](size_t row) {
    return std::make_pair(rows.x + row * rows.stride * kernels::SizeOf(rows.type), rows.type);
  };
  meter_.Add(worker, {rows.rows, rows.k, at}, tokens_, layer->second.inputs.at(rows.role));
}

}  // namespace pinion
