// Fields whose values would change the mathematics are refused by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/spec/configs.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

struct Refusal {
  const char *model, *key, *value, *says;
};

void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.model << " " << refusal.key << "=" << refusal.value;
}

class RefusedField : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedField, IsNamedInTheError) {
  const Refusal& refusal = GetParam();
  EXPECT_THAT(ErrorOf(With(refusal.model, refusal.key, refusal.value)), HasSubstr(refusal.says));
}

INSTANTIATE_TEST_SUITE_P(
    Spec, RefusedField,
    ::testing::Values(
        Refusal{"llama", "architectures", R"(["GPT2LMHeadModel"])", "'GPT2LMHeadModel'"},
        Refusal{"llama", "architectures", "[3]", "'architectures'"},
        Refusal{"llama", "architectures", "3.5", "'architectures' is 3.5, want a list"},
        Refusal{"llama", "architectures", "{}", "'architectures' is {}, want a list"},
        Refusal{"llama", "text_config", "{}", "'text_config'"},
        Refusal{"llama", "text_config", "3", "'text_config'"},
        Refusal{"llama", "text_config", R"({"model_type": "mllama_text_model"})", "mllama"},
        Refusal{"llama", "hidden_act", R"("mish")", "'hidden_act'"},
        Refusal{"llama", "sliding_window", "4096", "'sliding_window'"},
        Refusal{"llama", "final_logit_softcapping", "30.0", "'final_logit_softcapping'"},
        Refusal{"llama", "logits_scaling", "8.0", "'logits_scaling'"},
        Refusal{"llama", "qk_norm", "true", "'qk_norm'"},
        Refusal{"llama", "partial_rotary_factor", "0.01", "'partial_rotary_factor'"},
        Refusal{"llama", "partial_rotary_factor", "1.5", "'partial_rotary_factor'"},
        Refusal{"llama", "attn_logit_softcapping", "50.0", "'attn_logit_softcapping'"},
        Refusal{"llama", "residual_multiplier", "0.5", "'residual_multiplier'"},
        Refusal{"llama", "use_alibi", "true", "'use_alibi'"},
        Refusal{"mistral", "layer_types", R"(["chunked_attention", "full_attention"])", "chunked"},
        Refusal{"mistral", "attention_bias", "true", "'attention_bias'"},
        Refusal{"mistral", "sliding_window", "-1", "'sliding_window'"},
        Refusal{"arcee", "sliding_window", "4096", "'sliding_window'"},
        Refusal{"gemma2", "sliding_window", "null", "'sliding_window'"},
        Refusal{"gemma2", "layer_types", R"(["full_attention"])", "each of 4 layers"},
        Refusal{"gemma2", "hidden_activation", R"("gelu_fast")", "'hidden_activation'"},
        Refusal{"gemma2", "query_pre_attn_scalar", "0", "'query_pre_attn_scalar'"},
        Refusal{"gemma2", "attn_logit_softcapping", "-1", "'attn_logit_softcapping'"},
        Refusal{"gemma4-dense", "num_kv_shared_layers", "3", "want 0 to 2"},
        Refusal{"gemma4-dense", "num_kv_shared_layers", "2", "no layer before 1 is of its type"},
        Refusal{"gemma3n", "altup_active_idx", "1", "'altup_active_idx'"},
        Refusal{"gemma3n", "altup_num_inputs", "17", "1 to 16"},
        Refusal{"gemma3n", "activation_sparsity_pattern", "[0.95]", "each of 6 layers"},
        Refusal{"gemma3n", "activation_sparsity_pattern", "[1, 0, 0, 0, 0, 0]", "below 1"},
        Refusal{"gemma3n", "intermediate_size", "[80, 80]", "each of 6 layers"},
        Refusal{"gemma3n", "intermediate_size", R"([80, 80, 80, 80, 80, "x"])", "want integers"},
        Refusal{"gemma3n", "intermediate_size", "[80, 80, 80, 80, 80, 0]", "want 1 to"},
        Refusal{"gemma3n", "attention_bias", "true", "'attention_bias'"},
        Refusal{"gemma4-dense", "enable_moe_block", "true", "'num_experts'"},
        Refusal{"gemma4-dense", "hidden_size_per_layer_input", "-1",
                "'hidden_size_per_layer_input'"},
        Refusal{"gemma4-dense", "num_global_key_value_heads", "3", "key-value heads"},
        Refusal{"gemma3", "use_bidirectional_attention", "true", "'use_bidirectional_attention'"},
        Refusal{"granite", "logits_scaling", "0", "'logits_scaling'"},
        Refusal{"granite", "attention_multiplier", R"("x")", "'attention_multiplier'"},
        Refusal{"olmo2", "clip_qkv", "8.0", "'clip_qkv'"},
        Refusal{"smollm3", "no_rope_layers", "[1, 0]", "each of 4 layers"},
        Refusal{"smollm3", "no_rope_layers", "[1, 1, 1, 2]", "'no_rope_layers' holds 2"},
        Refusal{"smollm3", "use_sliding_window", "true", "'use_sliding_window'"},
        Refusal{"exaone4", "sliding_window_pattern", R"("LLX")", "'LLX'"},
        Refusal{"cohere2", "position_embedding_type", R"("rope")", "'position_embedding_type'"},
        Refusal{"cohere2", "use_parallel_block", "false", "'use_parallel_block'"},
        Refusal{"hunyuan", "use_qk_norm", "false", "'use_qk_norm'"},
        Refusal{"hunyuan", "use_cla", "true", "'use_cla'"},
        Refusal{"ernie4.5-moe", "use_bias", "true", "'use_bias'"},
        Refusal{"ernie4.5-moe", "moe_k", "9", "'moe_k' is 9, want 1 to 8"},
        Refusal{"hunyuan-moe", "num_experts", "[8, 4]", "'num_experts' differs"},
        Refusal{"hunyuan-moe", "num_experts", "[]", "'num_experts'"},
        Refusal{"hunyuan-moe", "use_mixed_mlp_moe", "false", "'use_mixed_mlp_moe'"},
        Refusal{"glm4-moe-lite", "mlp_layer_types", R"(["dense"])", "each of 3 layers"},
        Refusal{"glm4-moe-lite", "mlp_layer_types", R"(["dense", "sparse", "x"])",
                "dense or sparse"},
        Refusal{"minimax-m2", "rotary_dim", "15", "an even number"},
        Refusal{"minimax-m2", "attn_type_list", "[1, 0, 1]", "'attn_type_list' holds 0"},
        Refusal{"minimax-m2", "scoring_func", R"("softmax")", "'scoring_func'"},
        Refusal{"ministral3", "attention_bias", "true", "'attention_bias'"},
        Refusal{"phi3-longrope", "original_max_position_embeddings", "1", "want more than 1"},
        Refusal{"phi3-longrope", "num_attention_heads", "4", "'short_factor'"},
        Refusal{"phi3", "mlp_bias", "true", "'mlp_bias'"},
        Refusal{"llama", "num_local_experts", "8", "'num_local_experts'"},
        Refusal{"llama", "layer_types", R"(["sliding_attention"])", "sliding_attention"},
        Refusal{"llama", "num_experts", "8", "'num_experts'"},
        Refusal{"llama", "kv_lora_rank", "64", "'kv_lora_rank'"},
        Refusal{"mixtral", "num_experts_per_tok", "5", "'num_experts_per_tok' is 5, want 1 to 4"},
        Refusal{"mixtral", "num_local_experts", "16385", "1 to 16384"},
        Refusal{"mixtral", "num_local_experts", "0", "'num_local_experts' is 0"},
        Refusal{"qwen3moe", "mlp_only_layers", "[\"one\"]", "'mlp_only_layers'"},
        Refusal{"qwen3.5-text", "layer_types", R"(["linear_attention"])", "each of 4 layers"},
        Refusal{"qwen3.5-text", "layer_types",
                R"(["linear_attention", "linear_attention", "linear_attention", "mamba"])",
                "linear_attention or full_attention"},
        Refusal{
            "qwen3.5-text", "layer_types",
            R"(["linear_attention", "linear_attention", "linear_attention", "linear_attention"])",
            "at least one"},
        Refusal{"qwen3.5-text", "linear_num_value_heads", "3", "a multiple of the 2 key heads"},
        Refusal{"qwen3.5-text", "linear_value_head_dim", "12", "a multiple of 8"},
        Refusal{"qwen3.5-text", "linear_key_head_dim", "520", "8 to 512"},
        Refusal{"qwen3.5-text", "linear_conv_kernel_dim", "17", "2 to 16"},
        Refusal{"qwen3.5-text", "attention_bias", "true", "'attention_bias'"},
        Refusal{"qwen3next", "mlp_only_layers", "[0]", "'mlp_only_layers'"},
        Refusal{"qwen3next", "decoder_sparse_step", "2", "'decoder_sparse_step'"},
        Refusal{"llama4", "layer_types", R"(["full_attention"])", "lists 1 layers, want 4"},
        Refusal{"llama4", "no_rope_layers", "[1, 1, 1, 2]", "want 0 or 1"},
        Refusal{"llama4", "moe_layers", "[4]", "want layers from 0 to 3"},
        Refusal{"llama4", "attention_chunk_size", "0", "'attention_chunk_size'"},
        Refusal{"llama4", "attention_bias", "true", "'attention_bias'"},
        Refusal{"deepseekv3.2", "index_topk", "0", "'index_topk'"},
        Refusal{"deepseekv3.2", "index_head_dim", "8", "16 to 512"},
        Refusal{"deepseekv3.2", "q_lora_rank", "null", "'q_lora_rank'"},
        Refusal{"deepseekv3.2", "layer_types", R"(["full_attention"])", "indexed_attention only"},
        Refusal{"kimi-linear", "mla_use_nope", "false", "'mla_use_nope'"},
        Refusal{"kimi-linear", "linear_attn_config", "4", "'linear_attn_config'"},
        Refusal{"kimi-linear", "linear_attn_config",
                R"({"kda_layers": [1, 2, 3], "full_attn_layers": [3], "head_dim": 16,
                    "num_heads": 4})",
                "each layer from 1 to 4 once"},
        Refusal{"kimi-linear", "linear_attn_config",
                R"({"kda_layers": [1, 2, 3], "full_attn_layers": [], "head_dim": 16,
                    "num_heads": 4})",
                "layer 4 is in neither"},
        Refusal{"lfm2", "conv_bias", "true", "'conv_bias'"},
        Refusal{"lfm2", "conv_L_cache", "17", "2 to 16"},
        Refusal{"lfm2", "full_attn_idxs", "[]", "at least one"},
        Refusal{"lfm2", "full_attn_idxs", "2", "a list of layers"},
        Refusal{"lfm2", "block_ffn_dim_multiplier", "1e6", "at most 1048576"},
        Refusal{"lfm2-moe", "layer_types", R"(["conv"])", "each of 5 layers"},
        Refusal{"lfm2-moe", "layer_types", R"(["conv", "conv", "mamba", "conv", "full_attention"])",
                "conv or full_attention"},
        Refusal{"bamba", "mamba_n_heads", "0", "1 to 1024"},
        Refusal{"bamba", "mamba_n_groups", "3", "a multiple of the 3 groups"},
        Refusal{"bamba", "mamba_d_head", "12", "a multiple of 8 from 8 to 512"},
        Refusal{"bamba", "mamba_d_conv", "1", "2 to 16"},
        Refusal{"bamba", "mamba_proj_bias", "true", "'mamba_proj_bias'"},
        Refusal{"bamba", "attn_layer_indices", "[]", "at least one"},
        Refusal{"bamba", "attn_layer_indices", "2", "a list of layers"},
        Refusal{"bamba", "time_step_limit", "[0.1]", "a list of two numbers"},
        Refusal{"bamba", "time_step_limit", "[0.5, 0.1]", "from 0.5 to 0.1"},
        Refusal{"bamba", "time_step_limit", R"([0, "inf"])", "want two numbers"},
        Refusal{"falconh1", "mamba_d_ssm", "80", "want 96"},
        Refusal{"falconh1", "ssm_multipliers", "[1, 1]", "a list of 5 numbers"},
        Refusal{"falconh1", "mlp_multipliers", "[1, 0]", "1e-12 to 1e12"},
        Refusal{"falconh1", "projectors_bias", "true", "'projectors_bias'"},
        Refusal{"falconh1", "hidden_act", R"("gelu")", "'hidden_act'"},
        Refusal{"bamba", "hidden_act", R"("gelu")", "'hidden_act'"},
        Refusal{"granite4", "hidden_act", R"("relu")", "'hidden_act'"},
        Refusal{"nemotronh", "hybrid_override_pattern", R"("M-X*")", "'X', want M, *, - or E"},
        Refusal{"nemotronh", "hybrid_override_pattern", R"("M-M-")", "at least one"},
        Refusal{"nemotronh", "num_hidden_layers", "8", "want 7"},
        Refusal{"nemotronh", "layers_block_type", R"(["mamba", "conv"])", "mlp or moe"},
        Refusal{"nemotronh-moe", "moe_latent_size", "16", "'moe_latent_size'"},
        Refusal{"nemotronh-moe", "n_routed_experts", "0", "1 to 16384"},
        Refusal{"granite4", "layer_types", R"(["mamba"])", "each of 4 layers"},
        Refusal{"granite4", "layer_types", R"(["mamba", "mamba", "attention", "conv"])",
                "mamba or attention"},
        Refusal{"granite4", "position_embedding_type", R"("alibi")", "rope or nope"},
        Refusal{"granite4", "shared_intermediate_size", "0", "1 to 1048576"},
        Refusal{"gptoss", "swiglu_limit", "0", "'swiglu_limit' is 0"},
        Refusal{"gptoss", "layer_types", "[\"full_attention\"]", "each of 2 layers"},
        Refusal{"gptoss", "layer_types", "[\"full_attention\", \"linear\"]", "linear"},
        Refusal{"deepseekv2", "topk_method", "\"random\"", "'random'"},
        Refusal{"deepseekv2", "scoring_func", "\"tanh\"", "'tanh'"},
        Refusal{"deepseekv2", "kv_lora_rank", "1024", "at most 512"},
        Refusal{"deepseekv3", "kv_lora_rank", "null", "'kv_lora_rank'"},
        Refusal{"deepseekv3", "n_group", "3", "'n_group' is 3, want a divisor"},
        Refusal{"deepseekv3", "topk_group", "5", "'topk_group' is 5, want 1 to 'n_group', 4"},
        Refusal{"llama", "layer_types", "3", "'layer_types'"},
        Refusal{"llama", "dtype", R"("float8_e4m3fn")", "float8_e4m3fn"},
        Refusal{"llama", "num_hidden_layers", "0", "1 to 1024"},
        Refusal{"llama", "num_hidden_layers", "1000000000", "1 to 1024"},
        Refusal{"llama", "num_hidden_layers", "3.0", "'num_hidden_layers'"},
        Refusal{"llama", "num_hidden_layers", "null", "'num_hidden_layers'"},
        Refusal{"llama", "hidden_size", "-64", "'hidden_size'"},
        Refusal{"llama", "hidden_size", "9223372036854775807", "'hidden_size'"},
        Refusal{"llama", "vocab_size", "1e99", "'vocab_size'"},
        Refusal{"llama", "num_attention_heads", "0", "'num_attention_heads'"},
        Refusal{"llama", "num_key_value_heads", "3",
                "'num_attention_heads' is 4, want a multiple of the 3 key-value heads of layer 0 "
                "('num_key_value_heads')"},
        Refusal{"llama", "head_dim", "12", "multiple of 8"},
        Refusal{"llama", "rms_norm_eps", "2", "epsilon"},
        Refusal{"llama", "max_position_embeddings", "100000000000", "'max_position_embeddings'"},
        Refusal{"llama2", "attention_bias", "1", "'attention_bias'"},
        Refusal{"qwen2", "num_attention_heads", "5", "'num_attention_heads'"},
        Refusal{"opt", "do_layer_norm_before", "false", "'do_layer_norm_before'"},
        Refusal{"opt", "_remove_final_layer_norm", "true", "'_remove_final_layer_norm'"},
        Refusal{"opt", "activation_function", R"("tanh")", "'activation_function'"},
        Refusal{"opt", "word_embed_proj_dim", "32", "'word_embed_proj_dim'"}));

// Code knows these under the names that other architectures have for them.
INSTANTIATE_TEST_SUITE_P(
    OfItsOwnName, RefusedField,
    ::testing::Values(
        Refusal{"kimi-linear", "num_expert_group", "0", "'num_expert_group' is 0"},
        Refusal{"kimi-linear", "num_experts_per_token", "99", "'num_experts_per_token' is 99"},
        Refusal{"nemotronh", "layer_norm_epsilon", R"("x")", "'layer_norm_epsilon' is"},
        Refusal{"nemotronh", "mlp_hidden_act", R"("mish")", "'mlp_hidden_act' is"},
        Refusal{"hunyuan-moe", "moe_topk", "99", "'moe_topk' is 99"},
        Refusal{"bamba", "torch_dtype", R"("float8")", "'torch_dtype' is 'float8'"}));

TEST(Refusals, UseAnArchitecturesOwnNamesInsideAWrapperAsWell) {
  Json config = Config("gemma4-moe");
  Json text = *config.Find("text_config");
  text.Set("top_k_experts", 99);
  config.Set("text_config", text);
  EXPECT_THAT(ErrorOf(config), HasSubstr("'top_k_experts' is 99, want 1 to 8"));
}

}  // namespace
}  // namespace pinion
