#include "engine/calibrate/statistics.h"

#include <algorithm>
#include <cmath>

#include "engine/calibrate/gram.h"

namespace pinion {

StatisticsCollector::StatisticsCollector(const kernels::Table& table, int first, int last,
                                         size_t tokens, bool wants_gram)
    : table_(table), tokens_(tokens), wants_gram_(wants_gram) {
  for (int layer = first; layer < last; ++layer)
    for (const MatrixRole role :
         {MatrixRole::kQkv, MatrixRole::kO, MatrixRole::kMlpIn, MatrixRole::kDown})
      layers_[layer][role];
}

void StatisticsCollector::See(const Worker& worker, const ObservedRows& rows) {
  const auto layer = layers_.find(rows.layer);
  if (layer == layers_.end()) return;
  InputStatistics& inputs = layer->second.at(rows.role);
  if (worker.thread == 0) Begin(rows, inputs);
  worker.TeamBarrier();
  const auto [begin, end] = worker.Slice(rows.rows);
  for (size_t row = begin; row < end; ++row)
    table_.convert(reinterpret_cast<std::byte*>(rows_.data() + row * rows.k), kernels::Dtype::kF32,
                   rows.x + row * rows.stride * kernels::SizeOf(rows.type), rows.type, rows.k);
  worker.TeamBarrier();
  if (worker.thread == 0) Sample(rows, inputs);
  Measure(worker, rows, inputs);
  worker.TeamBarrier();
  if (!wants_gram_) return;
  AddOuterProducts(
      table_, worker,
      {inputs.gram.data(), rows.k, rows.k, columns_.data(), columns_.data(), depth_, 1});
  worker.TeamBarrier();
}

// One thread makes room for what all of them write.
void StatisticsCollector::Begin(const ObservedRows& rows, InputStatistics& inputs) {
  rows_.Resize(rows.rows * rows.k);
  depth_ = kernels::RoundUp(rows.rows, kernels::kPadK);
  if (wants_gram_) columns_.Resize(rows.k * depth_);
  if (inputs.k == rows.k) return;
  inputs.k = rows.k;
  inputs.largest.assign(rows.k, 0);
  inputs.sums.assign(rows.k, 0);
  inputs.sample.Resize(std::min(kSampleRows, tokens_) * inputs.k_padded());
  if (wants_gram_) inputs.gram.Resize(rows.k * rows.k);
}

void StatisticsCollector::Sample(const ObservedRows& rows, InputStatistics& inputs) {
  const size_t wanted = std::min(kSampleRows, tokens_);
  for (size_t row = 0; row < rows.rows; ++row, ++inputs.rows) {
    if (inputs.sample_rows == wanted) continue;
    if ((inputs.rows + 1) * wanted / tokens_ == inputs.rows * wanted / tokens_) continue;
    std::copy_n(rows_.data() + row * rows.k, rows.k,
                inputs.sample.data() + inputs.sample_rows++ * inputs.k_padded());
  }
}

void StatisticsCollector::Measure(const Worker& worker, const ObservedRows& rows,
                                  InputStatistics& inputs) {
  const auto [first, last] = worker.Slice(rows.k);
  for (size_t row = 0; row < rows.rows; ++row) {
    const float* x = rows_.data() + row * rows.k;
    for (size_t i = first; i < last; ++i) {
      const float magnitude = std::abs(x[i]);
      inputs.largest[i] = std::max(inputs.largest[i], magnitude);
      inputs.sums[i] += magnitude;
      if (wants_gram_) columns_.data()[i * depth_ + row] = x[i];
    }
  }
}

}  // namespace pinion
