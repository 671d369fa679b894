#include "engine/calibrate/calibration.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/host/budget.h"

namespace pinion {

Calibration::Calibration(StartedModel& model, std::vector<std::vector<int32_t>> windows,
                         bool wants_gram)
    : model_(model), windows_(std::move(windows)), wants_gram_(wants_gram) {
  for (const auto& window : windows_) tokens_ += window.size();
}

LayerStatistics Calibration::Take(int layer) {
  if (!layers_.contains(layer)) Collect(layer);
  return std::move(layers_.extract(layer).mapped());
}

// Gram matrices take k^2 floats of every input; everything else is small beside them.
int Calibration::LayersAtOnce() const {
  const DecoderSpec& spec = model_.files.spec;
  if (!wants_gram_) return spec.layers;
  const auto square = [](int k) { return static_cast<uint64_t>(k) * static_cast<uint64_t>(k); };
  const uint64_t bytes = sizeof(float) * (2 * square(spec.hidden) + square(spec.intermediate) +
                                          square(spec.heads * spec.head_dim));
  return static_cast<int>(std::clamp<uint64_t>(AvailableMemoryBytes() / 2 / bytes, 1,
                                               static_cast<uint64_t>(spec.layers)));
}

void Calibration::Collect(int first) {
  const int last = std::min(model_.files.spec.layers, first + LayersAtOnce());
  LogInfo(StrCat("calibrating layers ", first, " to ", last - 1, " on ", tokens_, " tokens"));
  StatisticsCollector collector(kernels::TableFor(model_.isa), first, last, tokens_, wants_gram_);
  model_.decoder->Observe(&collector);
  std::vector<int32_t> blocks(model_.info.blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  StepBatch batch;
  for (const auto& window : windows_) {
    batch.tokens = window;
    batch.slices = {{0, window.size(), 0, blocks.data()}};
    model_.decoder->Forward(batch, [](const Worker&, size_t, size_t, float*, size_t) {});
  }
  model_.decoder->Observe(nullptr);
  for (int layer = first; layer < last; ++layer) layers_[layer] = collector.Take(layer);
}

}  // namespace pinion
