#include "engine/checkpoint/gguf_architectures.h"

#include <algorithm>
#include <set>
#include <vector>

#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr GgufPresence kAttentionBias[] = {{"blk.0.attn_q.bias", "attention_bias"}};
constexpr GgufPresence kErnieBias[] = {{"blk.0.attn_q.bias", "use_bias"}};
constexpr GgufPresence kSeedBiases[] = {{"blk.0.attn_q.bias", "attention_bias"},
                                        {"blk.0.attn_output.bias", "attention_out_bias"}};
constexpr GgufPresence kGlm4Moe[] = {{"blk.0.attn_q.bias", "attention_bias"},
                                     {"blk.0.attn_q_norm.weight", "use_qk_norm"}};

constexpr GgufField kGemma2[] = {{"attn_logit_softcapping", "attn_logit_softcapping"},
                                 {"final_logit_softcapping", "final_logit_softcapping"}};
constexpr GgufField kGemma3[] = {{"rope.freq_base_swa", "rope_local_base_freq"},
                                 {"final_logit_softcapping", "final_logit_softcapping"}};
constexpr GgufField kGranite[] = {{"attention.scale", "attention_multiplier"},
                                  {"embedding_scale", "embedding_multiplier"},
                                  {"residual_scale", "residual_multiplier"},
                                  {"logit_scale", "logits_scaling"}};
constexpr GgufField kLocalExperts[] = {{"expert_count", "num_local_experts"},
                                       {"expert_used_count", "num_experts_per_tok"}};
constexpr GgufField kQwen3Moe[] = {{"expert_count", "num_experts"},
                                   {"expert_used_count", "num_experts_per_tok"},
                                   {"expert_feed_forward_length", "moe_intermediate_size"}};
constexpr GgufField kMiniMax[] = {{"expert_count", "num_local_experts"},
                                  {"expert_used_count", "num_experts_per_tok"},
                                  {"rope.dimension_count", "rotary_dim"}};
constexpr GgufField kErnieMoe[] = {{"expert_count", "moe_num_experts"},
                                   {"expert_used_count", "moe_k"},
                                   {"expert_shared_count", "moe_num_shared_experts"},
                                   {"expert_feed_forward_length", "moe_intermediate_size"},
                                   {"interleave_moe_layer_step", "moe_layer_interval"},
                                   {"leading_dense_block_count", "moe_layer_start_index"}};
constexpr GgufField kHunYuanMoe[] = {{"expert_count", "num_experts"},
                                     {"expert_used_count", "moe_topk"}};
constexpr GgufField kGroupedExperts[] = {{"expert_count", "n_routed_experts"},
                                         {"expert_used_count", "num_experts_per_tok"},
                                         {"expert_shared_count", "n_shared_experts"},
                                         {"expert_feed_forward_length", "moe_intermediate_size"},
                                         {"expert_group_count", "n_group"},
                                         {"expert_group_used_count", "topk_group"},
                                         {"expert_weights_scale", "routed_scaling_factor"},
                                         {"expert_weights_norm", "norm_topk_prob"},
                                         {"leading_dense_block_count", "first_k_dense_replace"}};
constexpr GgufField kDeepSeek[] = {{"expert_count", "n_routed_experts"},
                                   {"expert_used_count", "num_experts_per_tok"},
                                   {"expert_shared_count", "n_shared_experts"},
                                   {"expert_feed_forward_length", "moe_intermediate_size"},
                                   {"expert_group_count", "n_group"},
                                   {"expert_group_used_count", "topk_group"},
                                   {"expert_weights_scale", "routed_scaling_factor"},
                                   {"expert_weights_norm", "norm_topk_prob"},
                                   {"leading_dense_block_count", "first_k_dense_replace"},
                                   {"attention.kv_lora_rank", "kv_lora_rank"},
                                   {"attention.q_lora_rank", "q_lora_rank"},
                                   {"attention.value_length_mla", "v_head_dim"},
                                   {"rope.dimension_count", "qk_rope_head_dim"}};
constexpr GgufField kLfm2[] = {{"attention.layer_norm_rms_epsilon", "norm_eps"},
                               {"shortconv.l_cache", "conv_L_cache"}};
constexpr GgufField kLfm2Moe[] = {{"attention.layer_norm_rms_epsilon", "norm_eps"},
                                  {"shortconv.l_cache", "conv_L_cache"},
                                  {"expert_count", "num_experts"},
                                  {"expert_used_count", "num_experts_per_tok"},
                                  {"expert_feed_forward_length", "moe_intermediate_size"},
                                  {"leading_dense_block_count", "num_dense_layers"}};
constexpr GgufField kCohere2[] = {{"logit_scale", "logit_scale"},
                                  {"attention.layer_norm_epsilon", "layer_norm_eps"}};

constexpr GgufField kLayerNorm[] = {{"attention.layer_norm_epsilon", "layer_norm_eps"}};

constexpr GgufField kModernBert[] = {
    {"attention.layer_norm_epsilon", "norm_eps"},
    {"attention.sliding_window", "local_attention"},
    {"attention.sliding_window_pattern", "global_attn_every_n_layers"},
    {"rope.freq_base_swa", "local_rope_theta"},
    {"hidden_activation", "hidden_activation"}};

// The distance of layers without a window has another name in their config.json.
constexpr std::string_view kNoPattern = R"({"sliding_window_pattern": null})";
constexpr GgufPresence kHeadBias[] = {{"cls.bias", "classifier_bias"}};

constexpr GgufName kMlpNormAfterAttention[] = {
    {&TensorNames::mlp_norm, "blk.{}.post_attention_norm"}};
constexpr GgufName kNormsOfSums[] = {{&TensorNames::attention_post_norm, "blk.{}.attn_output_norm"},
                                     {&TensorNames::mlp_post_norm, "blk.{}.layer_output_norm"}};
constexpr GgufName kNormOfLfm2[] = {{&TensorNames::final_norm, "token_embd_norm"}};
constexpr int64_t kSigmoid = 2;  // expert_gating_func

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama",
     .hugging_face = "MixtralForCausalLM",
     .when = "expert_count",
     .fields = kLocalExperts,
     .permuted = true},
    {.name = "llama",
     .hugging_face = "LlamaForCausalLM",
     .presences = kAttentionBias,
     .permuted = true},
    {.name = "qwen2", .hugging_face = "Qwen2ForCausalLM"},
    {.name = "qwen3", .hugging_face = "Qwen3ForCausalLM"},
    {.name = "qwen3moe",
     .hugging_face = "Qwen3MoeForCausalLM",
     .fields = kQwen3Moe,
     .constants = R"({"norm_topk_prob": true})"},
    {.name = "gemma2", .hugging_face = "Gemma2ForCausalLM", .fields = kGemma2, .whole_norms = true},
    {.name = "gemma3", .hugging_face = "Gemma3ForCausalLM", .fields = kGemma3, .whole_norms = true},
    {.name = "phi3", .hugging_face = "Phi3ForCausalLM"},
    {.name = "granite",
     .hugging_face = "GraniteForCausalLM",
     .fields = kGranite,
     .presences = kAttentionBias,
     .permuted = true},
    {.name = "olmo2", .hugging_face = "Olmo3ForCausalLM", .when = "attention.sliding_window"},
    {.name = "olmo2", .hugging_face = "Olmo2ForCausalLM"},
    {.name = "smollm3",
     .hugging_face = "SmolLM3ForCausalLM",
     .presences = kAttentionBias,
     .permuted = true},
    {.name = "seed_oss",
     .hugging_face = "SeedOssForCausalLM",
     .presences = kSeedBiases,
     .renamed = kMlpNormAfterAttention},
    {.name = "gpt-oss",
     .hugging_face = "GptOssForCausalLM",
     .fields = kLocalExperts,
     .constants = R"({"quantization_config": {"quant_method": "mxfp4"}})",
     .renamed = kMlpNormAfterAttention},
    {.name = "deepseek2",
     .hugging_face = "DeepseekV3ForCausalLM",
     .when = "expert_gating_func",
     .when_value = kSigmoid,
     .fields = kDeepSeek,
     .latent = true},
    {.name = "deepseek2",
     .hugging_face = "DeepseekV2ForCausalLM",
     .fields = kDeepSeek,
     .latent = true},
    {.name = "glm4", .hugging_face = "Glm4ForCausalLM", .presences = kAttentionBias},
    {.name = "glm4moe",
     .hugging_face = "Glm4MoeForCausalLM",
     .fields = kGroupedExperts,
     .presences = kGlm4Moe,
     .renamed = kMlpNormAfterAttention},
    {.name = "ernie4_5", .hugging_face = "Ernie4_5ForCausalLM", .presences = kErnieBias},
    {.name = "ernie4_5-moe",
     .hugging_face = "Ernie4_5_MoeForCausalLM",
     .fields = kErnieMoe,
     .presences = kErnieBias},
    {.name = "hunyuan-dense",
     .hugging_face = "HunYuanDenseV1ForCausalLM",
     .presences = kAttentionBias},
    {.name = "hunyuan-moe",
     .hugging_face = "HunYuanMoEV1ForCausalLM",
     .fields = kHunYuanMoe,
     .presences = kAttentionBias},
    {.name = "cohere2", .hugging_face = "Cohere2ForCausalLM", .fields = kCohere2},
    {.name = "exaone4", .hugging_face = "Exaone4ForCausalLM"},
    {.name = "minimax-m2", .hugging_face = "MiniMaxM2ForCausalLM", .fields = kMiniMax},
    {.name = "lfm2",
     .hugging_face = "Lfm2ForCausalLM",
     .fields = kLfm2,
     .constants = R"({"block_auto_adjust_ff_dim": false})",
     .renamed = kNormOfLfm2},
    {.name = "lfm2moe",
     .hugging_face = "Lfm2MoeForCausalLM",
     .fields = kLfm2Moe,
     .renamed = kNormOfLfm2},
    {.name = "gemma-embedding",
     .hugging_face = "Gemma3TextModel",
     .fields = kGemma3,
     .constants = R"({"use_bidirectional_attention": true})",
     .whole_norms = true,
     .bidirectional = true},
    {.name = "modern-bert",
     .hugging_face = "ModernBertForSequenceClassification",
     .with_tensor = "cls.output.weight",
     .fields = kModernBert,
     .presences = kHeadBias,
     .constants = kNoPattern,
     .bidirectional = true},
    {.name = "modern-bert",
     .hugging_face = "ModernBertModel",
     .fields = kModernBert,
     .constants = kNoPattern,
     .bidirectional = true},
    // RoBERTa and XLM-RoBERTa, too: files hold no rows of positions before the first token's.
    {.name = "bert",
     .hugging_face = "BertForSequenceClassification",
     .with_tensor = "cls.output.weight",
     .fields = kLayerNorm,
     .bidirectional = true,
     .encoder = true,
     .renamed = kNormsOfSums},
    {.name = "bert",
     .hugging_face = "BertModel",
     .fields = kLayerNorm,
     .bidirectional = true,
     .encoder = true,
     .renamed = kNormsOfSums},
    {.name = "nomic-bert",
     .hugging_face = "NomicBertModel",
     .fields = kLayerNorm,
     .bidirectional = true,
     .encoder = true,
     .renamed = kNormsOfSums},
};

bool Counts(const GgufArchitecture& entry, const GgufHeader& header) {
  if (!entry.with_tensor.empty() && !header.Find(entry.with_tensor)) return false;
  if (entry.when.empty()) return true;
  const Json* value = header.metadata.Find(StrCat(entry.name, ".", entry.when));
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
