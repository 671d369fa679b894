// ModernBERT, an encoder: LayerNorm before each part (but not before the first layer's attention,
// whose input the embeddings' norm has just made), fused projections, GeGLU, ropes, windows in most
// layers. Its cross-encoders have a dense layer, gelu, a norm and an output.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

TensorNames ModernBertNames() {
  const std::string layer = "model.layers.{}.";
  TensorNames names;
  names.embedding = "model.embeddings.tok_embeddings.weight";
  names.embedding_norm = "model.embeddings.norm";
  names.attention_norm = layer + "attn_norm";
  names.qkv = layer + "attn.Wqkv";
  names.o = layer + "attn.Wo";
  names.mlp_norm = layer + "mlp_norm";
  names.gate_up = layer + "mlp.Wi";
  names.down = layer + "mlp.Wo";
  names.final_norm = "model.final_norm";
  names.prefix_aliases = {{"model.", ""}};
  return names;
}

// transformers 4 has names of its own for both bases and for the distance of layers without window.
Status ReadModernWindows(Json config, DecoderSpec& spec) {
  PINION_ASSIGN(const int both_sides, RequireIn(config, "local_attention", 0, kMaxPositions));
  config.Set("sliding_window", both_sides / 2 + 1);  // what a token sees on one side, with itself
  PINION_ASSIGN(const int every, RequireIn(config, "global_attn_every_n_layers", 1, kMaxLayers));
  PINION_TRY(ReadWindows(config, spec, [every](int layer) { return layer % every != 0; }));
  PINION_ASSIGN(const double local, Require<double>(config, "local_rope_theta"));
  return AddWindowRope(config, Json::Object{{"rope_theta", local}}, spec);
}

Status ReadModernBert(const Json& whole, DecoderSpec& spec) {
  Json config = WithFullRope(whole);
  if (!config.Find("rope_theta")) config.Set("rope_theta", *config.Find("global_rope_theta"));
  PINION_TRY(ReadEncoderShape(config, "norm_eps", spec));
  PINION_ASSIGN(spec.activation, ReadActivation(config, "hidden_activation"));
  PINION_ASSIGN(spec.norm_bias, Optional<bool>(config, "norm_bias", false));
  PINION_ASSIGN(const bool bias, Optional<bool>(config, "attention_bias", false));
  spec.qkv_bias = spec.o_bias = bias;
  PINION_ASSIGN(spec.mlp_bias, Optional<bool>(config, "mlp_bias", false));
  spec.names = ModernBertNames();
  spec.layer_specs[0].attention_norm = false;
  return ReadModernWindows(whole, spec);
}

Status ReadModernBertClassifier(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadModernBert(config, spec));
  PINION_ASSIGN(spec.classifier.labels, ReadLabels(config));
  PINION_ASSIGN(const std::string pooling,
                Optional<std::string>(config, "classifier_pooling", "cls"));
  if (pooling != "cls" && pooling != "mean")
    return Fail(ErrorCode::kUnsupported,
                StrCat("'classifier_pooling' is '", pooling.substr(0, 60), "', want cls or mean"));
  spec.classifier.of_mean = pooling == "mean";
  spec.classifier.activation = ClassifierSpec::Activation::kGelu;
  PINION_ASSIGN(spec.classifier.dense_bias, Optional<bool>(config, "classifier_bias", false));
  spec.names.classifier_dense = "head.dense";
  spec.names.classifier_norm = "head.norm";
  spec.names.classifier_out = "classifier";
  return {};
}

constexpr NeutralField kModernNeutral[] = {{"is_decoder", "false"}};
constexpr NeutralField kModernClassifierNeutral[] = {{"is_decoder", "false"},
                                                     {"classifier_activation", "gelu"}};
constexpr std::string_view kModernReads[] = {"layer_types"};
constexpr std::string_view kModernDefaults =
    R"({"hidden_activation": "gelu", "max_position_embeddings": 8192, "norm_eps": 1e-5,
        "local_attention": 128, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0})";

}  // namespace

extern const Architecture kModernBert, kModernBertClassifier;
const Architecture kModernBert = {"ModernBertModel", "modernbert",   "ModernBERT (encoder)",
                                  kModernNeutral,    ReadModernBert, kModernReads,
                                  kModernDefaults};
const Architecture kModernBertClassifier = {"ModernBertForSequenceClassification",
                                            "",
                                            "ModernBERT (cross-encoder)",
                                            kModernClassifierNeutral,
                                            ReadModernBertClassifier,
                                            kModernReads,
                                            kModernDefaults};

}  // namespace pinion
