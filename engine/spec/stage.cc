#include "engine/spec/stage.h"

namespace pinion {

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
