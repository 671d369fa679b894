#include "engine/checkpoint/preset.h"

#include "engine/base/strings.h"

namespace pinion {
namespace {

struct Preset {
  const char* name;
  const char* config;  // config.json: the fields that shape the model, as published
};

// Shapes: the config.json of each model's own repository on huggingface.co.
constexpr Preset kPresets[] = {
    {"tiny", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
      "max_position_embeddings": 512, "rms_norm_eps": 1e-05, "hidden_act": "silu",
      "rope_theta": 10000.0, "tie_word_embeddings": true, "bos_token_id": 0, "eos_token_id": 1,
      "torch_dtype": "bfloat16"})"},
    {"opt-125m", R"({"architectures": ["OPTForCausalLM"], "model_type": "opt",
      "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
      "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 768,
      "activation_function": "relu", "do_layer_norm_before": true, "enable_bias": true,
      "tie_word_embeddings": true, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1,
      "torch_dtype": "float16"})"},
    {"qwen2.5-0.5b", R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
      "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
      "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
      "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "hidden_act": "silu",
      "rope_theta": 1000000.0, "use_sliding_window": false, "tie_word_embeddings": true,
      "bos_token_id": 151643, "eos_token_id": 151645, "torch_dtype": "bfloat16"})"},
    {"llama-3.2-1b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
      "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "hidden_act": "silu",
      "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
      "tie_word_embeddings": true, "bos_token_id": 128000,
      "eos_token_id": [128001, 128008, 128009], "torch_dtype": "bfloat16"})"},
    {"tinyllama-1.1b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
      "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000,
      "max_position_embeddings": 2048, "rms_norm_eps": 1e-05, "hidden_act": "silu",
      "rope_theta": 10000.0, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
      "torch_dtype": "bfloat16"})"},
    {"llama-2-7b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "hidden_act": "silu",
      "rope_theta": 10000.0, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
      "torch_dtype": "float16"})"},
    {"llama-3.1-8b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
      "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "hidden_act": "silu",
      "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
      "tie_word_embeddings": false, "bos_token_id": 128000,
      "eos_token_id": [128001, 128008, 128009], "torch_dtype": "bfloat16"})"},
    {"qwen3-0.6b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
      "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "hidden_act": "silu",
      "rope_theta": 1000000, "attention_bias": false, "use_sliding_window": false,
      "tie_word_embeddings": true, "bos_token_id": 151643, "eos_token_id": 151645,
      "torch_dtype": "bfloat16"})"},
    {"qwen3-1.7b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
      "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "hidden_act": "silu",
      "rope_theta": 1000000, "attention_bias": false, "use_sliding_window": false,
      "tie_word_embeddings": true, "bos_token_id": 151643, "eos_token_id": 151645,
      "torch_dtype": "bfloat16"})"},
    {"qwen3-4b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "hidden_act": "silu",
      "rope_theta": 1000000, "attention_bias": false, "use_sliding_window": false,
      "tie_word_embeddings": true, "bos_token_id": 151643, "eos_token_id": 151645,
      "torch_dtype": "bfloat16"})"},
    {"qwen3-8b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "hidden_act": "silu",
      "rope_theta": 1000000, "attention_bias": false, "use_sliding_window": false,
      "tie_word_embeddings": false, "bos_token_id": 151643, "eos_token_id": 151645,
      "torch_dtype": "bfloat16"})"},
    {"qwen3.5-0.8b", R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
      "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 24, "layer_types": [
      "linear_attention", "linear_attention", "linear_attention", "full_attention",
      "linear_attention", "linear_attention", "linear_attention", "full_attention",
      "linear_attention", "linear_attention", "linear_attention", "full_attention",
      "linear_attention", "linear_attention", "linear_attention", "full_attention",
      "linear_attention", "linear_attention", "linear_attention", "full_attention",
      "linear_attention", "linear_attention", "linear_attention", "full_attention"],
      "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320,
      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
      "linear_num_key_heads": 16, "linear_num_value_heads": 16,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-06, "hidden_act": "silu",
      "attention_bias": false, "rope_parameters": {"rope_type": "default",
      "rope_theta": 10000000, "partial_rotary_factor": 0.25, "mrope_interleaved": true,
      "mrope_section": [11, 11, 10]}, "tie_word_embeddings": true, "eos_token_id": 248044,
      "torch_dtype": "bfloat16"})"},
    {"mistral-7b", R"({"architectures": ["MistralForCausalLM"], "model_type": "mistral",
      "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
      "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "hidden_act": "silu",
      "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": false,
      "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"})"},
    // The published long factors grow like these, up to 32; speed does not depend on them.
    {"phi-4-mini", R"({"architectures": ["Phi3ForCausalLM"], "model_type": "phi3",
      "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
      "num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 200064,
      "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
      "partial_rotary_factor": 0.75, "rms_norm_eps": 1e-05, "hidden_act": "silu",
      "rope_theta": 10000.0, "rope_scaling": {"type": "longrope", "short_factor": [
      1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
      1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
      "long_factor": [
      1, 1.12, 1.25, 1.4, 1.56, 1.75, 1.96, 2.19, 2.45, 2.74, 3.06, 3.42, 3.83, 4.28,
      4.78, 5.35, 5.98, 6.69, 7.48, 8.37, 9.36, 10.5, 11.7, 13.1, 14.6, 16.4, 18.3, 20.5,
      22.9, 25.6, 28.6, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32]},
      "sliding_window": 262144, "tie_word_embeddings": true, "bos_token_id": 199999,
      "eos_token_id": 199999, "torch_dtype": "bfloat16"})"},
    {"gemma-2-2b", R"({"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2",
      "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000,
      "max_position_embeddings": 8192, "rms_norm_eps": 1e-06, "query_pre_attn_scalar": 256,
      "hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": 50.0,
      "final_logit_softcapping": 30.0, "rope_theta": 10000.0, "sliding_window": 4096,
      "tie_word_embeddings": true, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0,
      "torch_dtype": "bfloat16"})"},
    {"gemma-3-1b", R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
      "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26,
      "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144,
      "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "query_pre_attn_scalar": 256,
      "hidden_activation": "gelu_pytorch_tanh", "rope_theta": 1000000,
      "rope_local_base_freq": 10000, "sliding_window": 512, "sliding_window_pattern": 6,
      "tie_word_embeddings": true, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0,
      "torch_dtype": "bfloat16"})"},
    {"gemma-3n-e2b", R"({"architectures": ["Gemma3nForCausalLM"], "model_type": "gemma3n_text",
      "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 30,
      "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 262400,
      "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
      "num_kv_shared_layers": 10, "laurel_rank": 64, "altup_num_inputs": 4,
      "altup_coef_clip": 120.0, "altup_correct_scale": true, "final_logit_softcapping": 30.0,
      "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "sliding_window": 512,
      "hidden_activation": "gelu_pytorch_tanh", "rope_theta": 1000000,
      "rope_local_base_freq": 10000, "tie_word_embeddings": true, "bos_token_id": 2,
      "eos_token_id": 1, "pad_token_id": 0, "torch_dtype": "bfloat16"})"},
    {"olmo-2-1b", R"({"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2",
      "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
      "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 100352,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-06, "hidden_act": "silu",
      "rope_theta": 500000, "attention_bias": false, "tie_word_embeddings": false,
      "eos_token_id": 100257, "pad_token_id": 100277, "torch_dtype": "bfloat16"})"},
    {"granite-3-2b", R"({"architectures": ["GraniteForCausalLM"], "model_type": "granite",
      "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 40,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 49155,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "hidden_act": "silu",
      "rope_theta": 10000.0, "embedding_multiplier": 12.0, "attention_multiplier": 0.015625,
      "residual_multiplier": 0.22, "logits_scaling": 8.0, "attention_bias": false,
      "tie_word_embeddings": true, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
      "torch_dtype": "bfloat16"})"},
    {"granite-4.0-h-350m", R"({"architectures": ["GraniteMoeHybridForCausalLM"],
      "model_type": "granitemoehybrid", "hidden_size": 768, "intermediate_size": 2048,
      "shared_intermediate_size": 2048, "num_hidden_layers": 32, "layer_types": [
      "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
      "mamba", "attention", "mamba", "mamba", "attention",
      "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
      "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba"],
      "num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 100352,
      "mamba_n_heads": 48, "mamba_d_head": 32, "mamba_d_state": 128, "mamba_d_conv": 4,
      "mamba_n_groups": 1, "mamba_expand": 2, "mamba_conv_bias": true, "mamba_proj_bias": false,
      "num_local_experts": 0, "num_experts_per_tok": 0, "max_position_embeddings": 32768,
      "rms_norm_eps": 1e-05, "hidden_act": "silu", "embedding_multiplier": 12,
      "attention_multiplier": 0.015625, "residual_multiplier": 0.246, "logits_scaling": 3,
      "attention_bias": false, "position_embedding_type": "nope", "rope_theta": 10000,
      "tie_word_embeddings": true, "bos_token_id": 100257, "eos_token_id": 100257,
      "torch_dtype": "bfloat16"})"},
    {"lfm2-350m", R"({"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2",
      "hidden_size": 1024, "block_ff_dim": 6656, "block_auto_adjust_ff_dim": true,
      "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "num_hidden_layers": 16,
      "full_attn_idxs": [2, 5, 8, 10, 12, 14], "conv_L_cache": 3, "conv_bias": false,
      "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 65536,
      "max_position_embeddings": 128000, "norm_eps": 1e-05, "rope_theta": 1000000.0,
      "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 7, "pad_token_id": 0,
      "torch_dtype": "bfloat16"})"},
    {"bert-base", R"({"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 768,
      "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
      "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2,
      "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 0,
      "torch_dtype": "bfloat16"})"},
    {"mixtral-8x7b", R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
      "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
      "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 32768,
      "rms_norm_eps": 1e-05, "hidden_act": "silu", "rope_theta": 1000000.0,
      "sliding_window": null, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
      "torch_dtype": "bfloat16"})"},
    {"qwen3-30b-a3b", R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
      "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
      "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
      "head_dim": 128, "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8,
      "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "hidden_act": "silu",
      "rope_theta": 1000000.0, "attention_bias": false, "use_sliding_window": false,
      "tie_word_embeddings": false, "bos_token_id": 151643, "eos_token_id": 151645,
      "torch_dtype": "bfloat16"})"},
    // The published experts are MXFP4; this is the model in bfloat16.
    {"gpt-oss-20b", R"({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
      "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24,
      "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088,
      "num_local_experts": 32, "num_experts_per_tok": 4, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-05, "hidden_act": "silu", "attention_bias": true, "sliding_window": 128,
      "swiglu_limit": 7.0, "rope_theta": 150000, "rope_scaling": {"rope_type": "yarn",
      "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
      "original_max_position_embeddings": 4096}, "tie_word_embeddings": false,
      "eos_token_id": 200002, "pad_token_id": 199999, "torch_dtype": "bfloat16"})"},
    {"deepseek-v2-lite", R"({"architectures": ["DeepseekV2ForCausalLM"],
      "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
      "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16,
      "num_key_value_heads": 16, "vocab_size": 102400, "kv_lora_rank": 512, "q_lora_rank": null,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64,
      "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
      "moe_layer_freq": 1, "n_group": 1, "topk_group": 1, "topk_method": "greedy",
      "norm_topk_prob": false, "routed_scaling_factor": 1.0, "scoring_func": "softmax",
      "max_position_embeddings": 163840, "rms_norm_eps": 1e-06, "hidden_act": "silu",
      "rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32,
      "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707,
      "original_max_position_embeddings": 4096}, "attention_bias": false,
      "tie_word_embeddings": false, "bos_token_id": 100000, "eos_token_id": 100001,
      "torch_dtype": "bfloat16"})"},
};

// The model cut down to its first `layers` layers.
Result<Json> Shorten(Json config, const std::string& layers) {
  const Json all = *config.Find("num_hidden_layers");
  PINION_ASSIGN(const int64_t count, ParseInt(layers, "the preset's layers"));
  if (count < 1 || count > all.integer())
    return Fail(ErrorCode::kUsage,
                StrCat("the preset has ", all.integer(), " layers, not ", count));
  config.Set("num_hidden_layers", count);
  if (const Json* types = config.Find("layer_types")) {
    Json::Array first = types->array();
    first.resize(static_cast<size_t>(count));
    config.Set("layer_types", Json(std::move(first)));
  }
  return config;
}

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

Result<Json> PresetConfig(const std::string& text) {
  const size_t at = text.find('@');
  const std::string name = text.substr(0, at);
  for (const Preset& preset : kPresets) {
    if (name != preset.name) continue;
    PINION_ASSIGN(Json config, Json::Parse(preset.config));
    return at == std::string::npos ? config : Shorten(std::move(config), text.substr(at + 1));
  }
  return Fail(ErrorCode::kUsage,
              StrCat("no preset '", name, "', want one of ", Join(PresetNames(), ", ")));
}

}  // namespace pinion
