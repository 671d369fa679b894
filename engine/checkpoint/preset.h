#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/checkpoint/scheme.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/spec.h"

namespace pinion {

// "tiny", "opt-125m", "qwen2.5-0.5b", "llama-3.2-1b", "tinyllama-1.1b", "llama-2-7b",
// "llama-3.1-8b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3.5-0.8b", "mistral-7b",
// "ministral-3-3b", "phi-4-mini", "gemma-2-2b", "gemma-3-1b", "gemma-3n-e2b", "gemma-4-e2b",
// "gemma-4-31b", "olmo-2-1b", "smollm3-3b", "granite-3-2b", "granite-4.0-h-350m", "falcon-h1-0.5b",
// "bamba-9b", "nemotron-nano-9b-v2", "lfm2-350m", "bert-base", "mixtral-8x7b", "qwen3-30b-a3b",
// "qwen3.5-35b-a3b", "qwen3-next-80b-a3b", "gemma-4-26b-a4b", "gpt-oss-20b", "deepseek-v2-lite",
// "glm-4.7-flash", "kimi-linear-48b-a3b"
std::vector<std::string> PresetNames();
// The preset's config.json in the real model's shape; the error lists the names. "NAME@4" has only
// 4 layers (ShortenConfig): a big model's cost per layer, in less memory.
Result<Json> PresetConfig(const std::string& name);

// Weights made up from (seed, tensor name, element): the same on every machine and thread, roughly
// normal, with the standard deviation that keeps activations in range; norms are 1, biases small.
std::unique_ptr<TensorSource> MakeUpWeights(const DecoderSpec& spec, const std::string& dtype,
                                            uint64_t seed);

// Smaller vocabularies would hold hardly anything beside the 256 bytes and the special tokens.
inline constexpr int kSmallestMadeUpVocabulary = 300;

// A working byte-level BPE tokenizer.json, tokenizer_config.json (with a chat template) and
// generation_config.json of exactly this vocabulary size.
struct MadeUpTokenizer {
  Json tokenizer, tokenizer_config, generation_config;
};
MadeUpTokenizer MakeUpTokenizer(const Json& config);

// Writes a whole checkpoint folder: shards with an index, tokenizer, config.json. Only a few rows
// are in memory at a time.
//   config       a config.json; its vocabulary has at least kSmallestMadeUpVocabulary tokens
//   dtype        bfloat16, float16 or float32
//   scheme       linears are rounded to the nearest code and stored so; the rest stays in dtype
//   folder       made if absent; one that already holds a model is refused (kUsage)
//   shard_bytes  a file holds at most this many bytes of weights, or one tensor
// Files have temporary names until all are written, and are removed if that fails (a full disk is
// kExhausted), so that half a checkpoint never looks like a whole one.
Status WriteCheckpoint(const Json& config, const std::string& dtype,
                       const std::optional<QuantScheme>& scheme, uint64_t seed,
                       const std::string& folder, uint64_t shard_bytes = uint64_t{4} << 30);

}  // namespace pinion
