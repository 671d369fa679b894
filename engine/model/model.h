#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/model/gguf.h"
#include "engine/model/spec.h"
#include "engine/model/tensors.h"
#include "engine/quant/scheme.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// A model that was found, described and checked; its weights are not read yet.
struct ModelFiles {
  std::string name;    // as it was asked for
  std::string folder;  // empty for a preset and a GGUF file
  Json config;         // config.json, or what a GGUF file's metadata say
  std::optional<Json> generation_config;
  DecoderSpec spec;                      // eos_ids already joined with generation_config.json's
  std::optional<QuantScheme> scheme;     // of config.json's quantization_config
  std::shared_ptr<const GgufFile> gguf;  // null where MODEL is no GGUF file
};

// MODEL is a folder, a GGUF file, `preset:NAME`, or `org/name` in the local Hugging Face cache
// (HF_HUB_CACHE, HF_HOME, ~/.cache/huggingface/hub; the snapshot that refs/main names). Errors say
// where it looked.
Result<ModelFiles> FindModel(const std::string& model);

// Opens the weights (presets make theirs up from `seed`) and checks that every tensor the spec
// names is there in the right shape.
Result<std::unique_ptr<TensorSource>> OpenWeights(const ModelFiles& files, uint64_t seed = 0);

// The tokenizer alone: cheap, for front ends.
Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const ModelFiles& files);

}  // namespace pinion
