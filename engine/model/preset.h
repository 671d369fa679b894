#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/model/spec.h"
#include "engine/model/tensors.h"

namespace pinion {

// "tiny", "opt-125m", "qwen2.5-0.5b", "llama-3.2-1b", "tinyllama-1.1b", "llama-2-7b", "llama-3.1-8b"
std::vector<std::string> PresetNames();
// The preset's config.json at the real model's shape; error lists the names.
Result<Json> PresetConfig(const std::string& name);

// Weights made up from (seed, tensor name, element): the same on every machine and thread, roughly
// normal with the standard deviation that keeps activations in range; norms are 1, biases small.
std::unique_ptr<TensorSource> MakeUpWeights(const DecoderSpec& spec, const std::string& dtype,
                                            uint64_t seed);

// A working byte-level BPE tokenizer.json, tokenizer_config.json (with a chat template) and
// generation_config.json of exactly this vocabulary size.
struct MadeUpTokenizer {
  Json tokenizer, tokenizer_config, generation_config;
};
MadeUpTokenizer MakeUpTokenizer(const Json& config);

// Writes a whole checkpoint folder (config, shards of at most 4 GiB with an index, tokenizer).
// `dtype`: bfloat16, float16 or float32. The folder must not hold a config.json yet.
Status WriteCheckpoint(const Json& config, const std::string& dtype, uint64_t seed,
                       const std::string& folder);

}  // namespace pinion
