#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "engine/checkpoint/gguf_architectures.h"

namespace pinion {

// The parts of the entries in gguf_architectures.cc: fields of config.json by the metadata that
// files have for them, or by the tensors that are there; names of tensors that one architecture
// calls otherwise.

// The fields of an architecture that has those of other ones, too.
template <size_t... n>
constexpr std::array<GgufField, (n + ...)> Joined(const GgufField (&... lists)[n]) {
  std::array<GgufField, (n + ...)> all{};
  size_t size = 0;
  const auto add = [&](const auto& list) {
    for (const GgufField& field : list) all[size++] = field;
  };
  (add(lists), ...);
  return all;
}

inline constexpr GgufPresence kAttentionBiasPresence[] = {{"blk.0.attn_q.bias", "attention_bias"}};
inline constexpr GgufPresence kErnieBiasPresence[] = {{"blk.0.attn_q.bias", "use_bias"}};
inline constexpr GgufPresence kSeedBiasesPresence[] = {
    {"blk.0.attn_q.bias", "attention_bias"}, {"blk.0.attn_output.bias", "attention_out_bias"}};
inline constexpr GgufPresence kGlm4MoePresence[] = {{"blk.0.attn_q.bias", "attention_bias"},
                                                    {"blk.0.attn_q_norm.weight", "use_qk_norm"}};

// What Ministral 3's files have as it is; the mscale that its models have, too, is in none.
inline constexpr GgufField kMinistral3RopeFields[] = {
    {"rope.scaling.yarn_log_multiplier", "mscale_all_dim"},
    {"attention.temperature_scale", "llama_4_scaling_beta"}};
inline constexpr std::string_view kWholeMscale = R"({"mscale": 1.0})";

// GPT-OSS's borders between frequencies are not rounded.
inline constexpr std::string_view kUnroundedBorders = R"({"truncate": false})";

inline constexpr GgufField kGemma2Fields[] = {
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"}};
inline constexpr GgufField kGemma3Fields[] = {
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"final_logit_softcapping", "final_logit_softcapping"}};
inline constexpr GgufField kGraniteFields[] = {{"attention.scale", "attention_multiplier"},
                                               {"embedding_scale", "embedding_multiplier"},
                                               {"residual_scale", "residual_multiplier"},
                                               {"logit_scale", "logits_scaling"}};
inline constexpr GgufField kLocalExpertsFields[] = {{"expert_count", "num_local_experts"},
                                                    {"expert_used_count", "num_experts_per_tok"}};
inline constexpr GgufField kQwen3MoeFields[] = {
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"}};
inline constexpr GgufField kMiniMaxFields[] = {{"expert_count", "num_local_experts"},
                                               {"expert_used_count", "num_experts_per_tok"},
                                               {"rope.dimension_count", "rotary_dim"}};
inline constexpr GgufField kErnieMoeFields[] = {
    {"expert_count", "moe_num_experts"},
    {"expert_used_count", "moe_k"},
    {"expert_shared_count", "moe_num_shared_experts"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"interleave_moe_layer_step", "moe_layer_interval"},
    {"leading_dense_block_count", "moe_layer_start_index"}};
inline constexpr GgufField kHunYuanMoeFields[] = {{"expert_count", "num_experts"},
                                                  {"expert_used_count", "moe_topk"}};
inline constexpr GgufField kGroupedExpertsFields[] = {
    {"expert_count", "n_routed_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"leading_dense_block_count", "first_k_dense_replace"}};
inline constexpr GgufField kLatentFields[] = {{"attention.kv_lora_rank", "kv_lora_rank"},
                                              {"attention.q_lora_rank", "q_lora_rank"},
                                              {"attention.value_length_mla", "v_head_dim"},
                                              {"rope.dimension_count", "qk_rope_head_dim"}};
inline constexpr auto kDeepSeekFields = Joined(kGroupedExpertsFields, kLatentFields);
inline constexpr GgufField kIndexFields[] = {{"attention.indexer.head_count", "index_n_heads"},
                                             {"attention.indexer.key_length", "index_head_dim"},
                                             {"attention.indexer.top_k", "index_topk"}};
inline constexpr auto kIndexedDeepSeekFields =
    Joined(kGroupedExpertsFields, kLatentFields, kIndexFields);
inline constexpr GgufField kKimiFurtherFields[] = {
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_token"},
    {"expert_shared_count", "num_shared_experts"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_group_count", "num_expert_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"attention.head_count", "linear_num_heads"},
    {"kda.head_dim", "linear_head_dim"},
    {"ssm.conv_kernel", "linear_conv_kernel_dim"}};
inline constexpr auto kKimiLinearFields = Joined(kLatentFields, kKimiFurtherFields);
inline constexpr GgufField kLfm2Fields[] = {{"attention.layer_norm_rms_epsilon", "norm_eps"},
                                            {"shortconv.l_cache", "conv_L_cache"}};
inline constexpr GgufField kLfm2ExpertsFields[] = {
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"leading_dense_block_count", "num_dense_layers"}};
inline constexpr auto kLfm2MoeFields = Joined(kLfm2Fields, kLfm2ExpertsFields);
inline constexpr GgufField kDeltaFields[] = {
    {"ssm.conv_kernel", "linear_conv_kernel_dim"},
    {"ssm.state_size", "linear_key_head_dim"},
    {"ssm.group_count", "linear_num_key_heads"},
    {"ssm.time_step_rank", "linear_num_value_heads"},
    {"full_attention_interval", "full_attention_interval"}};
inline constexpr GgufField kDeltaExpertsFields[] = {
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}};
inline constexpr auto kDeltaMixtureFields = Joined(kDeltaFields, kDeltaExpertsFields);
inline constexpr GgufField kGemma4Fields[] = {
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"attention.shared_kv_layers", "num_kv_shared_layers"},
    {"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "top_k_experts"},
    {"expert_feed_forward_length", "moe_intermediate_size"}};
inline constexpr GgufField kGemma3nFields[] = {
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"attention.shared_kv_layers", "num_kv_shared_layers"},
    {"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
    {"altup.num_inputs", "altup_num_inputs"},
    {"altup.active_idx", "altup_active_idx"}};
inline constexpr GgufField kMambaFields[] = {{"ssm.conv_kernel", "mamba_d_conv"},
                                             {"ssm.state_size", "mamba_d_state"},
                                             {"ssm.group_count", "mamba_n_groups"},
                                             {"ssm.time_step_rank", "mamba_n_heads"}};
inline constexpr GgufField kGraniteFurtherFields[] = {
    {"attention.scale", "attention_multiplier"},
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"logit_scale", "logits_scaling"},
    {"feed_forward_length", "shared_intermediate_size"},  // of models without experts
    {"expert_shared_feed_forward_length", "shared_intermediate_size"},
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"}};
inline constexpr auto kGraniteHybridFields = Joined(kMambaFields, kGraniteFurtherFields);
inline constexpr GgufField kNemotronHFields[] = {
    {"attention.layer_norm_epsilon", "layer_norm_epsilon"},  // whatever the norm
    {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon"},
    {"ssm.conv_kernel", "conv_kernel"},
    {"ssm.state_size", "ssm_state_size"},
    {"ssm.group_count", "n_groups"},
    {"ssm.time_step_rank", "mamba_num_heads"},
    {"moe_latent_size", "moe_latent_size"},
    {"expert_count", "n_routed_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"expert_weights_norm", "norm_topk_prob"}};
inline constexpr GgufPresence kExpertsPresence[] = {
    {"blk.0.ffn_gate_inp.weight", "enable_moe_block"}};
inline constexpr GgufPresence kStateNormPresence[] = {{"blk.0.ssm_norm.weight", "mamba_rms_norm"}};
inline constexpr GgufField kLlama4Fields[] = {
    {"feed_forward_length", "intermediate_size_mlp"},
    {"expert_feed_forward_length", "intermediate_size"},
    {"interleave_moe_layer_step", "interleave_moe_layer_step"},
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"}};
inline constexpr GgufField kCohere2Fields[] = {{"logit_scale", "logit_scale"},
                                               {"attention.layer_norm_epsilon", "layer_norm_eps"}};

inline constexpr GgufField kLayerNormFields[] = {
    {"attention.layer_norm_epsilon", "layer_norm_eps"}};

inline constexpr GgufField kModernBertFields[] = {
    {"attention.layer_norm_epsilon", "norm_eps"},
    {"attention.sliding_window", "local_attention"},
    {"attention.sliding_window_pattern", "global_attn_every_n_layers"},
    {"rope.freq_base_swa", "local_rope_theta"},
    {"hidden_activation", "hidden_activation"}};

// The distance of layers without a window has another name in their config.json.
inline constexpr std::string_view kNoPattern = R"({"sliding_window_pattern": null})";
inline constexpr GgufPresence kHeadBiasPresence[] = {{"cls.bias", "classifier_bias"}};

// Files state a rotated part of heads that are not rotated.
inline constexpr std::string_view kNoRotation = R"({"partial_rotary_factor": null})";

inline constexpr GgufName kMlpNormAfterAttentionNames[] = {
    {&TensorNames::mlp_norm, "blk.{}.post_attention_norm"}};
inline constexpr GgufName kNormsOfSumsNames[] = {
    {&TensorNames::attention_post_norm, "blk.{}.attn_output_norm"},
    {&TensorNames::mlp_post_norm, "blk.{}.layer_output_norm"}};
inline constexpr GgufName kNormOfLfm2Names[] = {{&TensorNames::final_norm, "token_embd_norm"}};
inline constexpr GgufName kMlpBesideExpertsNames[] = {
    {&TensorNames::shared_gate, "blk.{}.ffn_gate"},
    {&TensorNames::shared_up, "blk.{}.ffn_up"},
    {&TensorNames::shared_down, "blk.{}.ffn_down"}};
inline constexpr GgufName kQwen3NextNames[] = {
    {&TensorNames::mlp_norm, "blk.{}.post_attention_norm"},
    {&TensorNames::delta_b, "blk.{}.ssm_ba"},
    {&TensorNames::delta_a, "blk.{}.ssm_ba"}};
inline constexpr GgufName kKimiLinearNames[] = {{&TensorNames::delta_o, "blk.{}.attn_output"}};
inline constexpr GgufName kOneNormNames[] = {{&TensorNames::mlp_norm, "blk.{}.attn_norm"}};

}  // namespace pinion
