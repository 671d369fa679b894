#include "engine/model/preset.h"

#include "engine/base/strings.h"

namespace pinion {
namespace {

struct Preset {
  const char* name;
  const char* config;  // config.json: the fields that shape the model, as its publisher has them
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
};

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

Result<Json> PresetConfig(const std::string& name) {
  for (const Preset& preset : kPresets)
    if (name == preset.name) return Json::Parse(preset.config);
  return Fail(ErrorCode::kUsage,
              StrCat("no preset '", name, "', want one of ", Join(PresetNames(), ", ")));
}

}  // namespace pinion
