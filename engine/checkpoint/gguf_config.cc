#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_architectures.h"
#include "engine/checkpoint/gguf_encoder.h"

namespace pinion {
namespace {

// Metadata under the architecture's prefix, copied to config.json's keys.
class Translation {
 public:
  Translation(const Json& metadata, std::string architecture)
      : metadata_(metadata), architecture_(std::move(architecture)) {}

  const Json* Find(std::string_view key) const {
    return metadata_.Find(StrCat(architecture_, ".", key));
  }
  Status Copy(std::string_view from, std::string_view to, bool required) {
    const Json* value = Find(from);
    if (value) {
      config_.Set(to, *value);
    } else if (required) {
      return Fail(ErrorCode::kCorrupt, StrCat("'", architecture_, ".", from, "' is missing"));
    }
    return {};
  }
  void Set(std::string_view key, Json value) { config_.Set(key, std::move(value)); }
  // What has been set, if it is a whole number.
  int64_t Whole(std::string_view key) const {
    const Json* value = config_.Find(key);
    return value && value->is_int() ? value->integer() : 0;
  }
  Json Take() { return std::move(config_); }

 private:
  const Json& metadata_;
  std::string architecture_;
  Json config_ = Json::MakeObject();
};

Result<int64_t> WholeOr(const Translation& translation, std::string_view key, int64_t fallback) {
  const Json* value = translation.Find(key);
  if (!value) return fallback;
  if (!value->is_int() || value->integer() < 0)
    return Fail(ErrorCode::kCorrupt,
                StrCat("'", key, "' is ", value->Dump().substr(0, 60), ", want a whole number"));
  return value->integer();
}

// Layers past the last ones, which predict further tokens, are left out.
Status CopyLayers(Translation& translation) {
  PINION_ASSIGN(const int64_t all, WholeOr(translation, "block_count", 0));
  PINION_ASSIGN(const int64_t further, WholeOr(translation, "nextn_predict_layers", 0));
  translation.Set("num_hidden_layers", all - further);
  return {};
}

Status CopyShape(Translation& translation) {
  constexpr struct {
    std::string_view from, to;
    bool required;
  } kFields[] = {
      {"block_count", "num_hidden_layers", true},
      {"embedding_length", "hidden_size", true},
      {"feed_forward_length", "intermediate_size", true},
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
  return CopyLayers(translation);
}

// Ordinary heads: one width, of which the first part may be rotated.
Status CopyHeads(Translation& translation) {
  PINION_ASSIGN(const int64_t heads, WholeOr(translation, "attention.head_count", 0));
  PINION_ASSIGN(const int64_t hidden, WholeOr(translation, "embedding_length", 0));
  const int64_t usual = heads > 0 ? hidden / heads : 0;
  PINION_ASSIGN(const int64_t key, WholeOr(translation, "attention.key_length", usual));
  PINION_ASSIGN(const int64_t value, WholeOr(translation, "attention.value_length", key));
  PINION_ASSIGN(const int64_t rotated, WholeOr(translation, "rope.dimension_count", key));
  if (key != value)
    return Fail(ErrorCode::kUnsupported,
                StrCat("keys are ", key, " wide and values ", value, " wide, want the same width"));
  if (rotated > key)
    return Fail(ErrorCode::kCorrupt, StrCat("'rope.dimension_count' is ", rotated,
                                            ", want at most the heads' width, ", key));
  translation.Set("head_dim", key);
  if (!translation.Find("attention.head_count_kv")) translation.Set("num_key_value_heads", heads);
  if (rotated < key)
    translation.Set("partial_rotary_factor",
                    static_cast<double>(rotated) / static_cast<double>(key));
  return {};
}

// Heads of keys and values by layer: one without any is a convolution (LFM2).
Status CopyHeadsByLayer(Translation& translation) {
  const Json* list = translation.Find("attention.head_count_kv");
  if (!list || !list->is_array()) return {};
  int64_t heads = 0;
  Json types = Json::MakeArray();
  for (const Json& layer : list->array()) {
    const int64_t here = layer.is_int() ? layer.integer() : -1;
    if (here < 0 || (here > 0 && heads > 0 && here != heads))
      return Fail(ErrorCode::kUnsupported,
                  StrCat("'attention.head_count_kv' holds ", layer.Dump().substr(0, 60),
                         ", want 0 or the same number for all layers"));
    heads = std::max(heads, here);
    types.Append(here == 0 ? "conv" : "full_attention");
  }
  translation.Set("num_key_value_heads", heads);
  translation.Set("layer_types", std::move(types));
  return {};
}

// Latent heads: the rotated part is in the fields, the rest of a key is not.
Status CopyLatentHeads(Translation& translation) {
  PINION_ASSIGN(const int64_t key, WholeOr(translation, "attention.key_length_mla", 0));
  PINION_ASSIGN(const int64_t rotated, WholeOr(translation, "rope.dimension_count", 0));
  if (key == 0)
    return Fail(ErrorCode::kUnsupported,
                "there is no 'attention.key_length_mla': the file is of early 2025 or older; "
                "convert the model with a current llama.cpp");
  translation.Set("qk_nope_head_dim", key - rotated);
  if (!translation.Find("expert_group_count")) {  // as of models without groups
    translation.Set("n_group", 1);
    translation.Set("topk_group", 1);
  }
  return {};
}

// The layers with a window, if the file lists them; else the architecture's rule decides.
Status CopyWindows(Translation& translation) {
  PINION_ASSIGN(const int64_t window, WholeOr(translation, "attention.sliding_window", 0));
  translation.Set("sliding_window", window > 0 ? Json(window) : Json());
  const Json* pattern = translation.Find("attention.sliding_window_pattern");
  if (window == 0 || !pattern) return {};
  if (!pattern->is_array()) {
    translation.Set("sliding_window_pattern", *pattern);
    return {};
  }
  Json types = Json::MakeArray();
  for (const Json& slides : pattern->array())
    types.Append(slides == Json(true) || slides == Json(1) ? "sliding_attention"
                                                           : "full_attention");
  translation.Set("layer_types", std::move(types));
  return {};
}

// Gemma's largest models divide products by another root than that of the heads' width, which files
// do not state; llama.cpp knows them by their number of layers, too.
void CopyGemmaScale(Translation& translation) {
  constexpr int64_t kLargestGemma2 = 46, kLargestGemma3 = 62;
  const int64_t layers = translation.Whole("num_hidden_layers");
  const bool largest = layers == kLargestGemma2 || layers == kLargestGemma3;
  const int64_t heads = std::max<int64_t>(1, translation.Whole("num_attention_heads"));
  translation.Set("query_pre_attn_scalar", largest ? translation.Whole("hidden_size") / heads
                                                   : translation.Whole("head_dim"));
}

// The float32 vector of a name; empty if there is none.
Result<std::vector<float>> ReadVector(const GgufFile& gguf, std::string_view name) {
  for (const GgufTensor& tensor : gguf.header.tensors) {
    if (tensor.name != name) continue;
    if (tensor.type->name != "F32" || tensor.shape.size() != 1 || gguf.files.empty())
      return Fail(ErrorCode::kCorrupt, StrCat("tensor '", name, "' is not an F32 vector"));
    std::vector<float> values(static_cast<size_t>(tensor.shape[0]));
    std::memcpy(values.data(), gguf.Data(tensor), tensor.bytes);
    return values;
  }
  return std::vector<float>();
}

Json Numbers(const std::vector<float>& values) {
  Json list = Json::MakeArray();
  for (const float value : values) list.Append(double{value});
  return list;
}

// Phi-3's factors for sequences up to the original length and beyond it.
Result<bool> CopyLongRope(const GgufFile& gguf, Translation& translation) {
  PINION_ASSIGN(const std::vector<float> beyond, ReadVector(gguf, "rope_factors_long.weight"));
  PINION_ASSIGN(const std::vector<float> within, ReadVector(gguf, "rope_factors_short.weight"));
  if (beyond.empty() || within.empty()) return false;
  Json scaling = Json::Object{{"rope_type", "longrope"},
                              {"long_factor", Numbers(beyond)},
                              {"short_factor", Numbers(within)}};
  if (const Json* length = translation.Find("rope.scaling.original_context_length"))
    translation.Set("original_max_position_embeddings", *length);
  if (const Json* factor = translation.Find("rope.scaling.attn_factor"))
    scaling.Set("attention_factor", *factor);
  translation.Set("rope_scaling", std::move(scaling));
  return true;
}

Status CopyScaling(const Translation& translation, const GgufField& field, Json& scaling) {
  if (const Json* value = translation.Find(StrCat("rope.scaling.", field.from)))
    scaling.Set(field.to, *value);
  return {};
}

// llama.cpp's converter stores a tenth of DeepSeek's mscale_all_dim; published models' mscale
// equals it.
void CopyLogMultiplier(const Translation& translation, Json& scaling) {
  const Json* tenth = translation.Find("rope.scaling.yarn_log_multiplier");
  if (!tenth || !tenth->is_number()) return;
  for (const char* key : {"mscale", "mscale_all_dim"}) scaling.Set(key, tenth->number() * 10);
}

Status CopyRope(const GgufFile& gguf, const GgufArchitecture& architecture,
                Translation& translation) {
  PINION_TRY(translation.Copy("rope.freq_base", "rope_theta", false));
  PINION_ASSIGN(const bool is_long, CopyLongRope(gguf, translation));
  const Json* type = translation.Find("rope.scaling.type");
  if (is_long || !type || *type == Json("none")) return {};
  if ((!(*type == Json("linear")) && !(*type == Json("yarn"))) ||
      !translation.Find("rope.scaling.factor"))
    return Fail(ErrorCode::kUnsupported, StrCat("'rope.scaling.type' is ", type->Dump(),
                                                ", want none, linear or yarn with its factor"));
  Json scaling = Json::Object{{"rope_type", *type}};
  constexpr GgufField kFields[] = {{"factor", "factor"},
                                   {"original_context_length", "original_max_position_embeddings"},
                                   {"yarn_attn_factor", "attention_factor"},
                                   {"yarn_beta_fast", "beta_fast"},
                                   {"yarn_beta_slow", "beta_slow"}};
  for (const GgufField& field : kFields) PINION_TRY(CopyScaling(translation, field, scaling));
  if (architecture.latent) CopyLogMultiplier(translation, scaling);
  // GPT-OSS's borders between frequencies are not rounded.
  if (architecture.name == "gpt-oss") scaling.Set("truncate", false);
  translation.Set("rope_scaling", std::move(scaling));
  return {};
}

Status CopyArchitecture(const GgufFile& gguf, const GgufArchitecture& architecture,
                        Translation& translation) {
  PINION_TRY(CopyShape(translation));
  PINION_TRY(architecture.latent ? CopyLatentHeads(translation) : CopyHeads(translation));
  PINION_TRY(CopyHeadsByLayer(translation));
  PINION_TRY(CopyWindows(translation));
  for (const GgufField& field : architecture.fields) {
    if (field.from == "expert_count") translation.Set("num_experts", Json());
    PINION_TRY(translation.Copy(field.from, field.to, false));
  }
  for (const GgufPresence& presence : architecture.presences)
    translation.Set(presence.to, gguf.header.Find(presence.tensor) != nullptr);
  const Json constants = Json::Parse(architecture.constants).value();
  for (const auto& [key, value] : constants.object()) translation.Set(key, value);
  if (architecture.whole_norms) CopyGemmaScale(translation);
  return CopyRope(gguf, architecture, translation);
}

void CopyIds(const Json& metadata, Translation& translation) {
  if (const Json* bos = metadata.Find("tokenizer.ggml.bos_token_id"))
    translation.Set("bos_token_id", *bos);
  Json eos = Json::MakeArray();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"})
    if (const Json* id = metadata.Find(key)) eos.Append(*id);
  translation.Set("eos_token_id", std::move(eos));
}

// The embedding's rows, which some files state nowhere else.
Result<int64_t> VocabularySize(const GgufFile& gguf) {
  if (const GgufTensor* embedding = gguf.header.Find("token_embd.weight"))
    return embedding->shape.front();
  return Fail(ErrorCode::kCorrupt, "there is no tensor 'token_embd.weight'");
}

// The tensors that converters leave in F32 in a file of another type.
bool IsSmallMatrix(std::string_view tensor) {
  return IsEncoderTable(tensor) || tensor.ends_with(".shortconv.conv.weight");
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

Result<Json> GgufConfig(const GgufFile& gguf) {
  const Json& metadata = gguf.header.metadata;
  PINION_ASSIGN(const GgufArchitecture* architecture, FindGgufArchitecture(gguf.header));
  PINION_TRY(CheckAttention(gguf.header, *architecture));
  Translation translation(metadata, std::string(architecture->name));
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
  return translation.Take();
}

Status ApplyGguf(const GgufFile& gguf, DecoderSpec& spec) {
  PINION_ASSIGN(const GgufArchitecture* architecture, FindGgufArchitecture(gguf.header));
  if (architecture->whole_norms) spec.norm_offset = 0;
  PINION_ASSIGN(const std::vector<float> factors, ReadVector(gguf, "rope_freqs.weight"));
  if (factors.empty() || spec.ropes.empty()) return {};
  RopeSpec& rope = spec.ropes[0];
  if (factors.size() != static_cast<size_t>(rope.dim) / 2)
    return Fail(ErrorCode::kCorrupt, StrCat("tensor 'rope_freqs.weight' is not an F32 vector of ",
                                            rope.dim / 2, ", half a head"));
  for (const float factor : factors)
    if (!(factor > 0 && factor <= 1e6f))
      return Fail(ErrorCode::kCorrupt,
                  StrCat("tensor 'rope_freqs.weight' holds ", factor, ", want above 0 to 1e6"));
  rope.wave_factors.assign(factors.begin(), factors.end());
  return {};
}

}  // namespace pinion
