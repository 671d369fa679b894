#include "engine/spec/stage.h"

#include <algorithm>

namespace pinion {

std::vector<int> StageBegins(const DecoderSpec& spec) {
  std::vector<int> begins = {0};
  for (int begin = 1; begin < spec.layers; ++begin)
    if (std::none_of(spec.layer_specs.begin() + begin, spec.layer_specs.end(),
                     [begin](const LayerSpec& layer) {
                       return layer.kv_from >= 0 && layer.kv_from < begin;
                     }))
      begins.push_back(begin);
  return begins;
}

DecoderSpec StageOf(const DecoderSpec& spec, int begin, int end) {
  DecoderSpec stage = spec;
  stage.stage = {begin, end, begin == 0, end == spec.layers};
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (layer >= begin && layer < end) continue;
    LayerSpec& silent = stage.layer_specs[static_cast<size_t>(layer)];
    silent.mixer = MixerKind::kNone;
    silent.mlp = MlpKind::kNone;
  }
  if (!stage.stage.embeds) stage.names.embedding_norm.clear();
  if (!stage.stage.ends) stage.names.final_norm.clear();
  return stage;
}

}  // namespace pinion
