#include "engine/checkpoint/gguf_architectures.h"

#include <algorithm>
#include <set>
#include <vector>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf_fields.h"

namespace pinion {
namespace {

constexpr int64_t kSigmoid = 2;  // expert_gating_func
// Llama 4's lengths, which files do not state; neither do they say that the largest model, that of
// 128 experts, does not normalise queries and keys.
constexpr std::string_view kLlama4Lengths =
    R"({"attention_chunk_size": 8192, "floor_scale": 8192})";
constexpr std::string_view kLargestLlama4 =
    R"({"attention_chunk_size": 8192, "floor_scale": 8192, "use_qk_norm": false})";
constexpr int64_t kMostLlama4Experts = 128;

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama",
     .hugging_face = "MixtralForCausalLM",
     .when = "expert_count",
     .fields = kLocalExpertsFields,
     .permuted = true},
    {.name = "llama",
     .hugging_face = "LlamaForCausalLM",
     .presences = kAttentionBiasPresence,
     .permuted = true},
    // Mistral Small 3, without a scale, and Ministral 3.
    {.name = "mistral3",
     .hugging_face = "Ministral3ForCausalLM",
     .when = "rope.scaling.original_context_length",
     .presences = kAttentionBiasPresence,
     .rope_fields = kMinistral3RopeFields,
     .rope_constants = kWholeMscale,
     .permuted = true},
    {.name = "mistral3",
     .hugging_face = "MistralForCausalLM",
     .presences = kAttentionBiasPresence,
     .permuted = true},
    {.name = "arcee",
     .hugging_face = "ArceeForCausalLM",
     .presences = kAttentionBiasPresence,
     .permuted = true},
    {.name = "qwen2", .hugging_face = "Qwen2ForCausalLM"},
    {.name = "qwen3", .hugging_face = "Qwen3ForCausalLM"},
    {.name = "qwen3moe",
     .hugging_face = "Qwen3MoeForCausalLM",
     .fields = kQwen3MoeFields,
     .constants = R"({"norm_topk_prob": true})"},
    {.name = "gemma2",
     .hugging_face = "Gemma2ForCausalLM",
     .fields = kGemma2Fields,
     .whole_norms = true,
     .gemma_scale = true},
    {.name = "gemma3",
     .hugging_face = "Gemma3ForCausalLM",
     .fields = kGemma3Fields,
     .whole_norms = true,
     .gemma_scale = true},
    {.name = "phi3", .hugging_face = "Phi3ForCausalLM"},
    {.name = "granite",
     .hugging_face = "GraniteForCausalLM",
     .fields = kGraniteFields,
     .presences = kAttentionBiasPresence,
     .permuted = true},
    {.name = "olmo2", .hugging_face = "Olmo3ForCausalLM", .when = "attention.sliding_window"},
    {.name = "olmo2", .hugging_face = "Olmo2ForCausalLM"},
    {.name = "smollm3",
     .hugging_face = "SmolLM3ForCausalLM",
     .presences = kAttentionBiasPresence,
     .permuted = true},
    {.name = "seed_oss",
     .hugging_face = "SeedOssForCausalLM",
     .presences = kSeedBiasesPresence,
     .renamed = kMlpNormAfterAttentionNames},
    {.name = "gpt-oss",
     .hugging_face = "GptOssForCausalLM",
     .fields = kLocalExpertsFields,
     .constants = R"({"quantization_config": {"quant_method": "mxfp4"}})",
     .rope_constants = kUnroundedBorders,
     .renamed = kMlpNormAfterAttentionNames},
    // Files of GLM-4.7-Flash do not always say that experts are chosen by sigmoids.
    {.name = "deepseek2",
     .hugging_face = "Glm4MoeLiteForCausalLM",
     .with_tokenizer = "glm4",
     .fields = kDeepSeekFields,
     .latent = true},
    {.name = "deepseek2",
     .hugging_face = "DeepseekV3ForCausalLM",
     .when = "expert_gating_func",
     .when_value = kSigmoid,
     .fields = kDeepSeekFields,
     .latent = true},
    {.name = "deepseek2",
     .hugging_face = "DeepseekV2ForCausalLM",
     .fields = kDeepSeekFields,
     // With one group, as in the small model, it is the greedy method.
     .constants = R"({"topk_method": "group_limited_greedy"})",
     .latent = true},
    {.name = "deepseek32",
     .hugging_face = "DeepseekV32ForCausalLM",
     .fields = kIndexedDeepSeekFields,
     .latent = true},
    {.name = "kimi-linear",
     .hugging_face = "KimiLinearForCausalLM",
     .fields = kKimiLinearFields,
     .constants = R"({"moe_renormalize": true})",
     .latent = true,
     .without_heads = "linear_attention",
     .renamed = kKimiLinearNames},
    {.name = "glm4", .hugging_face = "Glm4ForCausalLM", .presences = kAttentionBiasPresence},
    {.name = "glm4moe",
     .hugging_face = "Glm4MoeForCausalLM",
     .fields = kGroupedExpertsFields,
     .presences = kGlm4MoePresence,
     .renamed = kMlpNormAfterAttentionNames},
    {.name = "ernie4_5", .hugging_face = "Ernie4_5ForCausalLM", .presences = kErnieBiasPresence},
    {.name = "ernie4_5-moe",
     .hugging_face = "Ernie4_5_MoeForCausalLM",
     .fields = kErnieMoeFields,
     .presences = kErnieBiasPresence},
    {.name = "hunyuan-dense",
     .hugging_face = "HunYuanDenseV1ForCausalLM",
     .presences = kAttentionBiasPresence},
    {.name = "hunyuan-moe",
     .hugging_face = "HunYuanMoEV1ForCausalLM",
     .fields = kHunYuanMoeFields,
     .presences = kAttentionBiasPresence},
    {.name = "cohere2", .hugging_face = "Cohere2ForCausalLM", .fields = kCohere2Fields},
    {.name = "exaone4", .hugging_face = "Exaone4ForCausalLM"},
    {.name = "minimax-m2", .hugging_face = "MiniMaxM2ForCausalLM", .fields = kMiniMaxFields},
    {.name = "lfm2",
     .hugging_face = "Lfm2ForCausalLM",
     .fields = kLfm2Fields,
     .constants = R"({"block_auto_adjust_ff_dim": false})",
     .without_heads = "conv",
     .renamed = kNormOfLfm2Names},
    {.name = "lfm2moe",
     .hugging_face = "Lfm2MoeForCausalLM",
     .fields = kLfm2MoeFields,
     .without_heads = "conv",
     .renamed = kNormOfLfm2Names},
    {.name = "qwen35",
     .hugging_face = "Qwen3_5ForCausalLM",
     .fields = kDeltaFields,
     .whole_norms = true,
     .tiled_values = true,
     .state_head = "linear_value_head_dim",
     .renamed = kMlpNormAfterAttentionNames},
    {.name = "qwen35moe",
     .hugging_face = "Qwen3_5MoeForCausalLM",
     .fields = kDeltaMixtureFields,
     .whole_norms = true,
     .tiled_values = true,
     .state_head = "linear_value_head_dim",
     .renamed = kMlpNormAfterAttentionNames},
    {.name = "qwen3next",
     .hugging_face = "Qwen3NextForCausalLM",
     .fields = kDeltaMixtureFields,
     .whole_norms = true,
     .state_head = "linear_value_head_dim",
     .renamed = kQwen3NextNames},
    {.name = "gemma4",
     .hugging_face = "Gemma4ForCausalLM",
     .fields = kGemma4Fields,
     .presences = kExpertsPresence,
     .renamed = kMlpBesideExpertsNames},
    {.name = "gemma3n", .hugging_face = "Gemma3nForCausalLM", .fields = kGemma3nFields},
    // Granite 4 turns off the rope that Bamba has.
    {.name = "granitehybrid",
     .hugging_face = "BambaForCausalLM",
     .when = "rope.scaling.finetuned",
     .fields = kMambaFields,
     .permuted = true,
     .without_heads = "mamba",
     .layer_list = "",
     .state_head = "mamba_d_head"},
    {.name = "granitehybrid",
     .hugging_face = "GraniteMoeHybridForCausalLM",
     .fields = kGraniteHybridFields,
     .constants = R"({"position_embedding_type": "nope", "num_local_experts": 0})",
     .permuted = true,
     .without_heads = "mamba",
     .state_head = "mamba_d_head"},
    {.name = "nemotron_h",
     .hugging_face = "NemotronHForCausalLM",
     .fields = kNemotronHFields,
     .constants = kNoRotation,
     .permuted = true,
     .without_heads = "mamba",
     .layer_list = "layers_block_type",
     .state_head = "mamba_head_dim",
     .renamed = kOneNormNames},
    {.name = "nemotron_h_moe",
     .hugging_face = "NemotronHForCausalLM",
     .fields = kNemotronHFields,
     .constants = kNoRotation,
     .permuted = true,
     .without_heads = "mamba",
     .layer_list = "layers_block_type",
     .state_head = "mamba_head_dim",
     .renamed = kOneNormNames},
    {.name = "falcon-h1",
     .hugging_face = "FalconH1ForCausalLM",
     .fields = kMambaFields,
     .presences = kStateNormPresence,
     .constants = R"({"mamba_norm_before_gate": false})",
     .state_head = "mamba_d_head"},
    {.name = "llama4",
     .hugging_face = "Llama4ForCausalLM",
     .when = "expert_count",
     .when_value = kMostLlama4Experts,
     .fields = kLlama4Fields,
     .constants = kLargestLlama4},
    {.name = "llama4",
     .hugging_face = "Llama4ForCausalLM",
     .fields = kLlama4Fields,
     .constants = kLlama4Lengths},
    {.name = "gemma-embedding",
     .hugging_face = "Gemma3TextModel",
     .fields = kGemma3Fields,
     .constants = R"({"use_bidirectional_attention": true})",
     .whole_norms = true,
     .gemma_scale = true,
     .bidirectional = true},
    {.name = "modern-bert",
     .hugging_face = "ModernBertForSequenceClassification",
     .with_tensor = "cls.output.weight",
     .fields = kModernBertFields,
     .presences = kHeadBiasPresence,
     .constants = kNoPattern,
     .bidirectional = true},
    {.name = "modern-bert",
     .hugging_face = "ModernBertModel",
     .fields = kModernBertFields,
     .constants = kNoPattern,
     .bidirectional = true},
    // RoBERTa and XLM-RoBERTa, too: files hold no rows of positions before the first token's.
    {.name = "bert",
     .hugging_face = "BertForSequenceClassification",
     .with_tensor = "cls.output.weight",
     .fields = kLayerNormFields,
     .bidirectional = true,
     .encoder = true,
     .renamed = kNormsOfSumsNames},
    {.name = "bert",
     .hugging_face = "BertModel",
     .fields = kLayerNormFields,
     .bidirectional = true,
     .encoder = true,
     .renamed = kNormsOfSumsNames},
    {.name = "nomic-bert",
     .hugging_face = "NomicBertModel",
     .fields = kLayerNormFields,
     .bidirectional = true,
     .encoder = true,
     .renamed = kNormsOfSumsNames},
};

bool Counts(const GgufArchitecture& entry, const GgufHeader& header) {
  if (!entry.with_tensor.empty() && !header.Find(entry.with_tensor)) return false;
  if (!entry.with_tokenizer.empty()) {
    const Json* pre = header.metadata.Find("tokenizer.ggml.pre");
    if (!pre || !(*pre == Json(entry.with_tokenizer))) return false;
  }
  if (entry.when.empty()) return true;
  const Json* value = header.metadata.Find(StrCat(entry.name, ".", entry.when));
  if (value && value->is_bool()) return value->boolean();
  if (!value || !value->is_int()) return false;
  return entry.when_value == 0 ? value->integer() > 0 : value->integer() == entry.when_value;
}

}  // namespace

std::span<const GgufArchitecture> GgufArchitectures() { return kArchitectures; }

std::string GgufArchitectureNames() {
  std::set<std::string> names;
  for (const GgufArchitecture& each : kArchitectures) names.emplace(each.name);
  return Join(std::vector<std::string>(names.begin(), names.end()), ", ");
}

Result<const GgufArchitecture*> FindGgufArchitecture(const GgufHeader& header) {
  PINION_ASSIGN(const std::string name,
                Require<std::string>(header.metadata, "general.architecture"));
  for (const GgufArchitecture& each : kArchitectures)
    if (each.name == name && Counts(each, header)) return &each;
  return Fail(ErrorCode::kUnsupported, StrCat("'general.architecture' is '", name.substr(0, 60),
                                              "', want one of ", GgufArchitectureNames()));
}

}  // namespace pinion
