#include "engine/calibrate/calibration.h"

#include <numeric>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/host/budget.h"
#include "engine/spec/attention_spec.h"

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

// Of what takes most: Gram matrices, k^2 floats of every input, and the rows that experts see.
uint64_t Calibration::StatisticsBytes(int layer) const {
  const DecoderSpec& spec = model_.files.spec;
  const bool has_experts = spec.layer_specs[static_cast<size_t>(layer)].mlp == MlpKind::kExperts;
  const auto square = [](int k) { return static_cast<uint64_t>(k) * static_cast<uint64_t>(k); };
  const int wide = has_experts ? spec.moe.shared_intermediate
                               : static_cast<int>(MlpWidth(spec, static_cast<size_t>(layer)));
  const int value_dim = spec.latent.kv_rank > 0
                            ? spec.latent.value_dim
                            : LayerHeads(spec, static_cast<size_t>(layer)).head_dim;
  uint64_t gram = 2 * square(spec.hidden) + square(wide) + square(spec.heads * value_dim) +
                  square(spec.latent.q_rank) + square(spec.latent.kv_rank);
  if (has_experts) gram += square(spec.hidden);
  const int per_token = spec.hidden + spec.moe.router.top_k * spec.moe.intermediate;
  const uint64_t rows = has_experts ? tokens_ * static_cast<uint64_t>(per_token) : 0;
  return sizeof(float) * ((wants_gram_ ? gram : 0) + rows);
}

// The layer after those that there is room for, one at least.
int Calibration::LastAtOnce(int first) const {
  const int layers = model_.files.spec.layers;
  const uint64_t room = AvailableMemoryBytes() / 2;
  uint64_t bytes = StatisticsBytes(first);
  int last = first + 1;
  while (last < layers && (bytes += StatisticsBytes(last)) <= room) ++last;
  return last;
}

void Calibration::TellOfSeldomExperts(int first, int last) const {
  const auto experts = static_cast<size_t>(model_.files.spec.moe.router.experts);
  const auto inputs = static_cast<size_t>(model_.files.spec.hidden);
  size_t all = 0, few = 0, none = 0;
  for (int layer = first; layer < last; ++layer) {
    if (layers_.at(layer).experts.empty()) continue;
    for (size_t expert = 0; expert < experts; ++expert, ++all) {
      const size_t tokens = layers_.at(layer).experts.tokens(expert);
      few += tokens < inputs;
      none += tokens == 0;
    }
  }
  if (few > 0)
    LogInfo(StrCat("of ", all, " experts ", few, " saw fewer tokens than they have inputs (",
                   inputs, "), ", none, " none at all; more calibration text would show more"));
}

void Calibration::Collect(int first) {
  const int last = LastAtOnce(first);
  LogInfo(StrCat("calibrating layers ", first, " to ", last - 1, " on ", tokens_, " tokens"));
  StatisticsCollector collector(kernels::TableFor(model_.isa), first, last, tokens_, wants_gram_);
  Decoder& decoder = model_.teams->decoder();
  decoder.Observe(&collector);
  std::vector<int32_t> blocks(model_.info.blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  const BlockTablePointers tables = SameBlocks(KvTables(model_.files.spec), blocks.data());
  StepBatch batch;
  for (const auto& window : windows_) {
    batch.tokens = window;
    batch.slices = {{0, window.size(), 0, tables, 0}};
    decoder.Forward(batch, [](const Worker&, size_t, size_t, float*, size_t) {});
  }
  decoder.Observe(nullptr);
  for (int layer = first; layer < last; ++layer) layers_[layer] = collector.Take(layer);
  TellOfSeldomExperts(first, last);
}

}  // namespace pinion
