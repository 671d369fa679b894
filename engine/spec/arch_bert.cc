// BERT and its relatives, encoders: embeddings of tokens, types and positions with a norm over
// their sum, LayerNorm of each residual sum, a plain MLP. XLM-R counts positions from behind its
// padding token; NomicBERT has ropes instead of positions, a gated MLP and no biases.
// Cross-encoders have a dense layer with tanh and an output over the first token.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// The parts that all of them name alike. prefix: "bert.", which files without a head leave out.
TensorNames BertEmbeddingNames(const std::string& prefix) {
  TensorNames names;
  names.embedding = prefix + "embeddings.word_embeddings.weight";
  names.type_embedding = prefix + "embeddings.token_type_embeddings.weight";
  if (!prefix.empty()) names.prefix_aliases = {{prefix, ""}};
  return names;
}

TensorNames BertNames(const std::string& prefix) {
  const std::string layer = prefix + "encoder.layer.{}.", attention = layer + "attention.";
  TensorNames names = BertEmbeddingNames(prefix);
  names.position_embedding = prefix + "embeddings.position_embeddings.weight";
  names.embedding_norm = prefix + "embeddings.LayerNorm";
  names.q = attention + "self.query";
  names.k = attention + "self.key";
  names.v = attention + "self.value";
  names.o = attention + "output.dense";
  names.attention_post_norm = attention + "output.LayerNorm";
  names.up = layer + "intermediate.dense";
  names.down = layer + "output.dense";
  names.mlp_post_norm = layer + "output.LayerNorm";
  return names;
}

Status ReadBertShape(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadEncoderShape(config, "layer_norm_eps", spec));
  PINION_ASSIGN(spec.token_types, RequireIn(config, "type_vocab_size", 1, kMaxTokenTypes));
  spec.norm_bias = spec.post_norms_of_sums = true;
  return {};
}

Status ReadWithPositions(const Json& config, const std::string& prefix, DecoderSpec& spec) {
  PINION_TRY(ReadBertShape(config, spec));
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = true;
  spec.gated = false;
  spec.ropes.clear();
  for (LayerSpec& layer : spec.layer_specs) layer.rope = -1;
  spec.names = BertNames(prefix);
  return {};
}

Status ReadBert(const Json& config, DecoderSpec& spec) {
  return ReadWithPositions(config, "bert.", spec);
}

Status ReadBertClassifier(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadBert(config, spec));
  PINION_ASSIGN(spec.classifier.labels, ReadLabels(config));
  spec.names.classifier_dense = "bert.pooler.dense";
  spec.names.classifier_out = "classifier";
  return {};
}

Status ReadXlmRoberta(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadWithPositions(config, "roberta.", spec));
  PINION_ASSIGN(const int padding, RequireIn(config, "pad_token_id", 0, spec.max_positions - 2));
  spec.position_offset = padding + 1;
  spec.max_positions -= spec.position_offset;
  return {};
}

Status ReadXlmRobertaClassifier(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadXlmRoberta(config, spec));
  PINION_ASSIGN(spec.classifier.labels, ReadLabels(config));
  spec.names.classifier_dense = "classifier.dense";
  spec.names.classifier_out = "classifier.out_proj";
  return {};
}

constexpr FieldAlias kNomicRenamed[] = {{"n_embd", "hidden_size"},
                                        {"n_head", "num_attention_heads"},
                                        {"n_inner", "intermediate_size"},
                                        {"n_layer", "num_hidden_layers"},
                                        {"n_positions", "max_position_embeddings"},
                                        {"layer_norm_epsilon", "layer_norm_eps"},
                                        {"rotary_emb_base", "rope_theta"}};

// Published configs have GPT-2's names for the fields.
Json WithOurNames(Json config) {
  for (const auto& [theirs, ours] : kNomicRenamed)
    if (const Json* value = config.Find(theirs)) config.Set(ours, Json(*value));
  return config;
}

Status ReadNomicBert(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadBertShape(WithOurNames(config), spec));
  const std::string layer = "encoder.layers.{}.";
  spec.names = BertEmbeddingNames("");
  spec.names.embedding_norm = "emb_ln";
  spec.names.qkv = layer + "attn.Wqkv";
  spec.names.o = layer + "attn.out_proj";
  spec.names.attention_post_norm = layer + "norm1";
  spec.names.gate = layer + "mlp.fc12";
  spec.names.up = layer + "mlp.fc11";
  spec.names.down = layer + "mlp.fc2";
  spec.names.mlp_post_norm = layer + "norm2";
  return {};
}

// A decoder of the same name would attend to the tokens before it alone, or to another model's.
constexpr NeutralField kBertNeutral[] = {{"position_embedding_type", "absolute"},
                                         {"is_decoder", "false"},
                                         {"add_cross_attention", "false"}};
constexpr NeutralField kNomicNeutral[] = {{"is_decoder", "false"},
                                          {"add_cross_attention", "false"},
                                          {"attention_bias", "false"},
                                          {"activation_function", "swiglu"},
                                          {"causal", "false"},
                                          {"moe_every_n_layers", "0"},
                                          {"parallel_block", "false"},
                                          {"prenorm", "false"},
                                          {"qkv_proj_bias", "false"},
                                          {"mlp_fc1_bias", "false"},
                                          {"mlp_fc2_bias", "false"},
                                          {"rotary_emb_fraction", "1"},
                                          {"rotary_emb_interleaved", "false"},
                                          {"rotary_emb_scale_base", ""},
                                          {"rotary_scaling_factor", ""},
                                          {"use_rms_norm", "false"},
                                          {"mlp_bias", "false"}};
constexpr std::string_view kBertDefaults =
    R"({"hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "pad_token_id": 1})";
constexpr std::string_view kNomicDefaults =
    R"({"hidden_act": "silu", "max_position_embeddings": 2048, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "rope_theta": 1000.0})";

}  // namespace

extern const Architecture kBert, kBertClassifier, kXlmRoberta, kXlmRobertaClassifier, kNomicBert;
const Architecture kBert = {"BertModel", "bert", "BERT (encoder)", kBertNeutral,
                            ReadBert,    {},     kBertDefaults};
const Architecture kBertClassifier = {"BertForSequenceClassification",
                                      "",
                                      "BERT (cross-encoder)",
                                      kBertNeutral,
                                      ReadBertClassifier,
                                      {},
                                      kBertDefaults};
const Architecture kXlmRoberta = {"XLMRobertaModel", "xlm-roberta",  "XLM-RoBERTa (encoder)",
                                  kBertNeutral,      ReadXlmRoberta, {},
                                  kBertDefaults};
const Architecture kXlmRobertaClassifier = {"XLMRobertaForSequenceClassification",
                                            "",
                                            "XLM-RoBERTa (cross-encoder)",
                                            kBertNeutral,
                                            ReadXlmRobertaClassifier,
                                            {},
                                            kBertDefaults};
const Architecture kNomicBert = {
    "NomicBertModel", "nomic_bert", "NomicBERT (encoder)", kNomicNeutral, ReadNomicBert, {},
    kNomicDefaults,   {},           kNomicRenamed};

}  // namespace pinion
