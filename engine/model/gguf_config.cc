#include <algorithm>
#include <cstring>

#include "engine/base/strings.h"
#include "engine/model/gguf.h"

namespace pinion {
namespace {

struct GgufArchitecture {
  std::string_view name, hugging_face;
};
constexpr GgufArchitecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}};

Result<std::string_view> HuggingFaceName(const std::string& architecture) {
  std::vector<std::string> known;
  for (const GgufArchitecture& each : kArchitectures) {
    if (each.name == architecture) return each.hugging_face;
    known.emplace_back(each.name);
  }
  return Fail(ErrorCode::kUnsupported,
              StrCat("'general.architecture' is '", architecture, "', want ", Join(known, ", ")));
}

bool HasTensor(const GgufFile& gguf, std::string_view name) {
  const auto& tensors = gguf.header.tensors;
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const GgufTensor& tensor) { return tensor.name == name; });
}

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
  Json Take() { return std::move(config_); }

 private:
  const Json& metadata_;
  std::string architecture_;
  Json config_ = Json::MakeObject();
};

Status CopyShape(Translation& translation) {
  struct Field {
    std::string_view from, to;
    bool required;
  };
  constexpr Field kFields[] = {
      {"block_count", "num_hidden_layers", true},
      {"embedding_length", "hidden_size", true},
      {"feed_forward_length", "intermediate_size", true},
      {"context_length", "max_position_embeddings", true},
      {"attention.head_count", "num_attention_heads", true},
      {"attention.head_count_kv", "num_key_value_heads", false},
      {"attention.key_length", "head_dim", false},
      {"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
      {"expert_count", "num_experts", false},
  };
  for (const Field& field : kFields)
    PINION_TRY(translation.Copy(field.from, field.to, field.required));
  const Json *key = translation.Find("attention.key_length"),
             *value = translation.Find("attention.value_length");
  if (key && value && !(*key == *value))
    return Fail(ErrorCode::kUnsupported, StrCat("keys are ", key->Dump(), " wide and values ",
                                                value->Dump(), ", want the same width"));
  const Json* rotated = translation.Find("rope.dimension_count");
  if (rotated && key && !(*rotated == *key))
    return Fail(ErrorCode::kUnsupported, StrCat("'rope.dimension_count' is ", rotated->Dump(),
                                                ", want the heads' width, ", key->Dump()));
  return {};
}

Status CopyRope(Translation& translation) {
  PINION_TRY(translation.Copy("rope.freq_base", "rope_theta", false));
  const Json* type = translation.Find("rope.scaling.type");
  if (!type || *type == Json("none")) return {};
  const Json* factor = translation.Find("rope.scaling.factor");
  if (!(*type == Json("linear")) || !factor || !factor->is_number())
    return Fail(ErrorCode::kUnsupported, StrCat("'rope.scaling.type' is ", type->Dump(),
                                                ", want none or linear with its factor"));
  translation.Set("rope_scaling", Json::Object{{"rope_type", "linear"}, {"factor", *factor}});
  return {};
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
  for (const GgufTensor& tensor : gguf.header.tensors)
    if (tensor.name == "token_embd.weight") return tensor.shape.front();
  return Fail(ErrorCode::kCorrupt, "there is no tensor 'token_embd.weight'");
}

// The type to compute in: the file's if it is not quantised.
const char* ComputeType(const GgufFile& gguf) {
  bool all_float = true, all_half = true;
  for (const GgufTensor& tensor : gguf.header.tensors) {
    if (tensor.shape.size() < 2) continue;
    all_float = all_float && tensor.type->name == "F32";
    all_half = all_half && tensor.type->name == "F16";
  }
  return all_float ? "float32" : all_half ? "float16" : "bfloat16";
}

}  // namespace

Result<Json> GgufConfig(const GgufFile& gguf) {
  const Json& metadata = gguf.header.metadata;
  PINION_ASSIGN(const std::string architecture,
                Require<std::string>(metadata, "general.architecture"));
  PINION_ASSIGN(const std::string_view name, HuggingFaceName(architecture));
  Translation translation(metadata, architecture);
  translation.Set("architectures", Json::Array{Json(name)});
  PINION_TRY(CopyShape(translation));
  PINION_TRY(CopyRope(translation));
  CopyIds(metadata, translation);
  PINION_ASSIGN(const int64_t vocabulary, VocabularySize(gguf));
  translation.Set("vocab_size", vocabulary);
  translation.Set("tie_word_embeddings", !HasTensor(gguf, "output.weight"));
  if (name == "LlamaForCausalLM")
    translation.Set("attention_bias", HasTensor(gguf, "blk.0.attn_q.bias"));
  translation.Set("torch_dtype", ComputeType(gguf));
  return translation.Take();
}

Status ApplyRopeFactors(const GgufFile& gguf, DecoderSpec& spec) {
  for (const GgufTensor& tensor : gguf.header.tensors) {
    if (tensor.name != "rope_freqs.weight") continue;
    RopeSpec& rope = spec.ropes.at(0);
    std::vector<float> factors(static_cast<size_t>(rope.dim) / 2);
    const std::vector<int64_t> shape{static_cast<int64_t>(factors.size())};
    if (tensor.type->name != "F32" || tensor.shape != shape)
      return Fail(ErrorCode::kCorrupt, StrCat("tensor 'rope_freqs.weight' is not an F32 vector of ",
                                              factors.size(), ", half a head"));
    std::memcpy(factors.data(), gguf.file->data() + tensor.begin, tensor.bytes);
    for (const float factor : factors)
      if (!(factor > 0 && factor <= 1e6f))
        return Fail(ErrorCode::kCorrupt,
                    StrCat("tensor 'rope_freqs.weight' holds ", factor, ", want above 0 to 1e6"));
    rope.wave_factors.assign(factors.begin(), factors.end());
  }
  return {};
}

}  // namespace pinion
