#include <algorithm>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {

extern const Architecture kLlama, kQwen2, kOpt, kMistral, kQwen3, kPhi3, kGemma2, kGemma3, kGemma4,
    kGranite, kOlmo2, kOlmo3, kMixtral, kQwen3Moe, kGptOss, kDeepseekV2, kDeepseekV3, kSmolLm3,
    kGlm4, kExaone4, kCohere2, kErnie45, kHunYuan, kMinistral3, kSeedOss, kErnie45Moe, kHunYuanMoe,
    kGlm4Moe, kGlm4MoeLite, kMiniMaxM2, kQwen3Next, kQwen35, kQwen35Moe, kLfm2, kLfm2Moe, kBamba,
    kGraniteHybrid, kFalconH1, kNemotronH, kLlama4, kKimiLinear, kDeepseekV32, kBert,
    kBertClassifier, kXlmRoberta, kXlmRobertaClassifier, kModernBert, kModernBertClassifier,
    kNomicBert, kGemma3Encoder, kQwen3Model, kGemma3n, kArcee;

namespace {

constexpr const Architecture* kAll[] = {
    &kLlama, &kQwen2, &kOpt, &kMistral, &kQwen3, &kPhi3, &kGemma2, &kGemma3, &kGranite, &kOlmo2,
    &kOlmo3, &kMixtral, &kQwen3Moe, &kGptOss, &kDeepseekV2, &kDeepseekV3, &kSmolLm3, &kGlm4,
    &kExaone4, &kCohere2, &kErnie45, &kHunYuan, &kMinistral3, &kSeedOss, &kErnie45Moe, &kHunYuanMoe,
    &kGlm4Moe, &kGlm4MoeLite, &kMiniMaxM2, &kQwen3Next, &kQwen35, &kQwen35Moe, &kLfm2, &kLfm2Moe,
    &kBamba, &kGraniteHybrid, &kFalconH1, &kNemotronH, &kLlama4, &kKimiLinear, &kDeepseekV32,
    &kGemma4, &kGemma3n, &kArcee,
    // encoders
    &kBert, &kBertClassifier, &kXlmRoberta, &kXlmRobertaClassifier, &kModernBert,
    &kModernBertClassifier, &kNomicBert, &kGemma3Encoder, &kQwen3Model};

// Fields of related models whose checkpoints sometimes claim an architecture that Pinion knows.
constexpr NeutralField kCommon[] = {
    {"alibi", "false"},
    {"attention_chunk_size", ""},
    {"attention_multiplier", ""},
    {"attn_logit_softcapping", ""},
    {"clip_qkv", ""},
    {"dim_model_base", ""},
    {"embedding_multiplier", "1"},
    {"final_logit_softcapping", ""},
    {"is_causal", "true"},
    {"is_decoder", "true|false"},
    {"is_encoder_decoder", "false"},
    {"kv_lora_rank", ""},
    {"logit_scale", "1"},
    {"logits_scaling", "1"},
    {"lm_head_multiplier", "1"},
    {"mlp_only_layers", "[]"},
    {"n_routed_experts", "0"},
    {"no_rope_layers", "[]"},
    {"num_experts", "0"},
    {"num_local_experts", "0"},
    {"q_lora_rank", ""},
    {"qk_layernorm", "false"},
    {"qk_norm", "false"},
    {"per_layer_config", "{}"},
    {"position_embedding_type", "rope|rotary|absolute"},
    {"query_pre_attn_scalar", ""},
    {"residual_multiplier", "1"},
    {"residual_scale", "1"},
    {"rope_interleave", "false"},
    {"rope_interleaved", "false"},
    {"rope_local_base_freq", ""},
    {"rope_ratio", "1"},
    {"rotary_pct", "1"},
    {"use_alibi", "false"},
    {"use_qkv_bias", "false"},
    {"scale_depth", ""},
    {"scale_emb", "1"},
    {"sliding_window_pattern", ""},
    {"use_bidirectional_attention", "false"},
    {"use_logn_attn", "false"},
    {"use_parallel_residual", "false"},
    {"use_qk_norm", "false"},
};

bool Matches(const Json& value, std::string_view allowed) {
  if (value.is_number()) {
    const auto number = ParseDouble(allowed, "");
    return number && *number == value.number();
  }
  return AsText(value) == allowed;
}

std::string Shortened(const Json& value) {
  std::string text = value.Dump();
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

tl::unexpected<Error> OutOfRange(std::string_view key, int64_t value, int64_t low, int64_t high) {
  return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' is ", value, ", want ", low, " to ", high));
}

}  // namespace

std::span<const Architecture* const> Architectures() { return kAll; }
std::span<const NeutralField> CommonNeutralFields() { return kCommon; }

std::string ArchitectureTable() {
  const auto names_of = [](const Architecture& architecture) {
    return architecture.wrapper.empty() ? StrCat("`", architecture.name, "`")
                                        : StrCat("`", architecture.name, "`, `",
                                                 architecture.wrapper, "` (its language model)");
  };
  constexpr std::string_view kModels = "models";
  const std::string name_of = "`architectures` of config.json";
  size_t wide = kModels.size(), name = name_of.size();
  for (const Architecture* architecture : kAll) {
    wide = std::max(wide, architecture->models.size());
    name = std::max(name, names_of(*architecture).size());
  }
  const auto row = [&](std::string_view left, const std::string& right, char fill) {
    return StrCat("|", std::string(1, fill), left, std::string(wide - left.size(), fill),
                  std::string(1, fill), "|", std::string(1, fill), right,
                  std::string(name - right.size(), fill), std::string(1, fill), "|\n");
  };
  std::string table = row(kModels, name_of, ' ') + row("", "", '-');
  std::vector<const Architecture*> sorted(std::begin(kAll), std::end(kAll));
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->models < b->models; });
  for (const Architecture* architecture : sorted)
    table += row(architecture->models, names_of(*architecture), ' ');
  return table;
}

Result<const Architecture*> FindArchitecture(const Json& config) {
  const Json* list = config.Find("architectures");
  if (list && !list->is_null() && !list->is_array())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'architectures' is ", Shortened(*list), ", want a list of one name"));
  const bool named = list && list->is_array() && !list->array().empty();
  if (named && !list->array()[0].is_string())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'architectures' holds ", Shortened(list->array()[0]), ", want a name"));
  PINION_ASSIGN(const std::string type, Optional<std::string>(config, "model_type", ""));
  const std::string wanted = named ? list->array()[0].string() : type;
  if (wanted.empty())
    return Fail(ErrorCode::kCorrupt,
                "config.json names neither 'architectures' nor 'model_type', want one of them");
  for (const Architecture* architecture : kAll)
    if (wanted == (named ? architecture->name : architecture->model_type)) return architecture;
  return Fail(ErrorCode::kUnsupported,
              StrCat(named ? "architecture '" : "model type '", wanted.substr(0, 80),
                     "' is not known; `pinion model list` names those that run"));
}

Status CheckNeutralFields(const Json& config, std::span<const NeutralField> fields,
                          std::span<const std::string_view> but) {
  for (const auto& [key, values] : fields) {
    const Json* value = config.Find(key);
    if (!value || value->is_null() || std::find(but.begin(), but.end(), key) != but.end()) continue;
    const auto allowed = Split(values, '|');
    const bool neutral = !values.empty() &&
                         std::any_of(allowed.begin(), allowed.end(), [&](const std::string& text) {
                           return Matches(*value, text);
                         });
    if (!neutral)
      return Fail(
          ErrorCode::kUnsupported,
          StrCat("'", key, "' is ", Shortened(*value),
                 ", which changes the model in a way Pinion does not compute; it runs ",
                 values.empty() ? "models without it" : StrCat("only ", Join(allowed, " or "))));
  }
  return {};
}

Result<int> RequireIn(const Json& config, std::string_view key, int64_t low, int64_t high) {
  PINION_ASSIGN(const int64_t value, Require<int64_t>(config, key));
  if (value < low || value > high) return OutOfRange(key, value, low, high);
  return static_cast<int>(value);
}

Result<int> OptionalIn(const Json& config, std::string_view key, int64_t low, int64_t high,
                       int fallback) {
  PINION_ASSIGN(const int64_t value, Optional<int64_t>(config, key, fallback));
  if (value < low || value > high) return OutOfRange(key, value, low, high);
  return static_cast<int>(value);
}

}  // namespace pinion
