#include <algorithm>
#include <iterator>
#include <string>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_architectures.h"
#include "engine/checkpoint/gguf_encoder.h"
#include "engine/checkpoint/gguf_gemma.h"
#include "engine/checkpoint/gguf_layers.h"
#include "engine/checkpoint/gguf_rope.h"
#include "engine/checkpoint/gguf_tokens.h"
#include "engine/checkpoint/gguf_translation.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status CopyShape(GgufTranslation& translation) {
  const struct {
    std::string_view from, to;
    bool required;
  } kFields[] = {
      {"block_count", "num_hidden_layers", true},
      {"embedding_length", "hidden_size", true},
      // models whose every layer has experts lack it
      {"feed_forward_length", "intermediate_size",
       translation.Find("expert_feed_forward_length") == nullptr},
      {"context_length", "max_position_embeddings", true},
      {"attention.head_count", "num_attention_heads", true},
      {"attention.head_count_kv", "num_key_value_heads", false},
      {"attention.layer_norm_rms_epsilon", "rms_norm_eps", false},
      {"expert_count", "num_experts", false},
  };
  for (const auto& field : kFields)
    PINION_TRY(translation.Copy(field.from, field.to, field.required));
  if (!translation.Find("attention.layer_norm_rms_epsilon") &&
      !translation.Find("attention.layer_norm_epsilon"))
    return Fail(ErrorCode::kCorrupt, "there is no 'attention.layer_norm_rms_epsilon'");
  return {};
}

// Metadata that changes the mathematics, with the values at which it does not. An architecture
// whose models compute it has it among its fields.
constexpr NeutralField kUnread[] = {{"attention.clamp_kqv", "0"},
                                    {"attention.max_alibi_bias", "0"},
                                    {"attention.scale", "0"},
                                    {"attention.temperature_length", "0"},
                                    {"attention.temperature_scale", "0"},
                                    {"attn_logit_softcapping", "0"},
                                    {"embedding_scale", "0|1"},
                                    {"expert_weights_scale", "0|1"},
                                    {"final_logit_softcapping", "0"},
                                    {"logit_scale", "0|1"},
                                    {"residual_scale", "0|1"},
                                    {"router_logit_softcapping", "0"},
                                    {"use_parallel_residual", "false"}};

Status CheckUnread(const GgufArchitecture& architecture, const GgufTranslation& translation) {
  Json unread = Json::MakeObject();
  for (const NeutralField& field : kUnread) {
    const auto reads = [&](const GgufField& own) { return own.from == field.key; };
    const bool is_read =
        std::any_of(architecture.fields.begin(), architecture.fields.end(), reads) ||
        std::any_of(architecture.rope_fields.begin(), architecture.rope_fields.end(), reads);
    if (const Json* value = translation.Find(field.key); value && !is_read)
      unread.Set(field.key, *value);
  }
  return CheckNeutralFields(unread, kUnread);
}

Status CopyArchitecture(const GgufFile& gguf, const GgufArchitecture& architecture,
                        GgufTranslation& translation) {
  PINION_TRY(CheckUnread(architecture, translation));
  PINION_TRY(CopyShape(translation));
  PINION_TRY(CopyGgufLayers(gguf.header, architecture, translation));
  const Json constants = Json::Parse(architecture.constants).value();
  for (const auto& [key, value] : constants.object()) translation.Set(key, value);
  for (const GgufField& field : architecture.fields) {
    if (field.from == "expert_count") translation.Set("num_experts", Json());
    PINION_TRY(translation.Copy(field.from, field.to, false));
  }
  for (const GgufPresence& presence : architecture.presences)
    translation.Set(presence.to, gguf.header.Find(presence.tensor) != nullptr);
  if (architecture.gemma_scale) CopyGemmaScale(translation);
  PINION_TRY(CopySmallGemma(gguf.header, translation));
  return CopyGgufRope(gguf, architecture, translation);
}

void CopyIds(const Json& metadata, GgufTranslation& translation) {
  if (const Json* bos = metadata.Find("tokenizer.ggml.bos_token_id"))
    translation.Set("bos_token_id", *bos);
  translation.Set("eos_token_id", GgufEnds(metadata));
}

// The embedding's rows, which some files state nowhere else.
Result<int64_t> VocabularySize(const GgufFile& gguf) {
  if (const GgufTensor* embedding = gguf.header.Find("token_embd.weight"))
    return embedding->shape.front();
  return Fail(ErrorCode::kCorrupt, "there is no tensor 'token_embd.weight'");
}

// The tensors that converters leave in F32 in a file of another type.
bool IsSmallMatrix(std::string_view tensor) {
  constexpr std::string_view kSuffixes[] = {"_norm.weight",
                                            ".altup_correct_coef.weight",
                                            ".altup_predict_coef.weight",
                                            ".ffn_gate_inp.weight",
                                            ".ffn_gate_inp_shexp.weight",
                                            ".indexer.proj.weight",
                                            ".shortconv.conv.weight",
                                            ".ssm_a",
                                            ".ssm_conv1d.weight",
                                            ".ssm_conv1d_k.weight",
                                            ".ssm_conv1d_q.weight",
                                            ".ssm_conv1d_v.weight",
                                            ".ssm_d"};
  return IsEncoderTable(tensor) ||
         std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                     [&](std::string_view suffix) { return tensor.ends_with(suffix); });
}

// The type to compute in: that of the file's matrices if they are not quantised.
const char* ComputeType(const GgufFile& gguf) {
  bool all_float = true, all_half = true;
  for (const GgufTensor& tensor : gguf.header.tensors) {
    if (tensor.shape.size() < 2 || IsSmallMatrix(tensor.name)) continue;
    all_float = all_float && tensor.type->name == "F32";
    all_half = all_half && tensor.type->name == "F16";
  }
  return all_float ? "float32" : all_half ? "float16" : "bfloat16";
}

}  // namespace

Result<Json> GgufConfig(const GgufFile& gguf, FieldNames* names) {
  const Json& metadata = gguf.header.metadata;
  PINION_ASSIGN(const GgufArchitecture* architecture, FindGgufArchitecture(gguf.header));
  PINION_TRY(CheckAttention(gguf.header, *architecture));
  GgufTranslation translation(metadata, std::string(architecture->name));
  translation.Set("architectures", Json::Array{Json(architecture->hugging_face)});
  PINION_TRY(CopyArchitecture(gguf, *architecture, translation));
  if (architecture->bidirectional) {
    PINION_ASSIGN(const Json fields, EncoderFields(gguf.header, *architecture));
    for (const auto& [key, value] : fields.object()) translation.Set(key, value);
  }
  CopyIds(metadata, translation);
  PINION_ASSIGN(const int64_t vocabulary, VocabularySize(gguf));
  translation.Set("vocab_size", vocabulary);
  translation.Set("tie_word_embeddings", gguf.header.Find("output.weight") == nullptr);
  translation.Set("torch_dtype", ComputeType(gguf));
  if (names) *names = translation.names();
  return translation.Take();
}

}  // namespace pinion
