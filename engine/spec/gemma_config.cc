// The common part of the configs of Gemma's small models: inputs of layers, keys and values of
// other layers.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {

Status ReadLayerInputs(const Json& config, DecoderSpec& spec) {
  LayerInputSpec& inputs = spec.layer_inputs;
  PINION_ASSIGN(inputs.size,
                OptionalIn(config, "hidden_size_per_layer_input", 0, kMaxIntermediate, 0));
  if (inputs.size == 0) return {};
  PINION_ASSIGN(inputs.vocabulary, OptionalIn(config, "vocab_size_per_layer_input", 1,
                                              kMaxVocabulary, spec.vocabulary));
  TensorNames& names = spec.names;
  names.layer_input_table = "model.embed_tokens_per_layer.weight";
  names.layer_input_projection = "model.per_layer_model_projection";
  names.layer_input_norm = "model.per_layer_projection_norm";
  names.layer_input_gate = "model.layers.{}.per_layer_input_gate";
  names.layer_input_out = "model.layers.{}.per_layer_projection";
  names.layer_input_post_norm = "model.layers.{}.post_per_layer_input_norm";
  return {};
}

Status ShareKeysAndValues(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const int shared,
                OptionalIn(config, "num_kv_shared_layers", 0, spec.layers - 1, 0));
  const auto first = spec.layer_specs.size() - static_cast<size_t>(shared);
  for (size_t layer = first; layer < spec.layer_specs.size(); ++layer) {
    LayerSpec& own = spec.layer_specs[layer];
    const bool slides = own.window > 0;
    for (size_t before = 0; before < first; ++before)
      if ((spec.layer_specs[before].window > 0) == slides) own.kv_from = static_cast<int>(before);
    if (own.kv_from < 0)
      return Fail(ErrorCode::kCorrupt,
                  StrCat("layer ", layer, " shares keys and values by 'num_kv_shared_layers' ",
                         shared, ", but no layer before ", first, " is of its type"));
  }
  return {};
}

}  // namespace pinion
