#pragma once

#include <memory>
#include <string>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/model/spec.h"
#include "engine/model/tensors.h"
#include "engine/quant/gguf_header.h"

namespace pinion {

// A GGUF file: one file that holds weights, configuration and tokenizer. Here its contents become
// what the rest of Pinion knows; nothing else sees the format.
struct GgufFile {
  std::shared_ptr<const MappedFile> file;
  GgufHeader header;
};

Result<std::shared_ptr<const GgufFile>> OpenGguf(const std::string& path);

// What config.json would say. Architectures: llama (Mistral's too), qwen2, qwen3; others, and
// metadata that would change the mathematics in ways Pinion does not compute, are errors.
Result<Json> GgufConfig(const GgufFile& gguf);

// The frequency factors that some files carry as a tensor instead of a rope scaling: become the
// rope's wave_factors.
Status ApplyRopeFactors(const GgufFile& gguf, DecoderSpec& spec);

// The tensors under the names of `spec`. Rows of q and k that the `llama` architecture stores in
// another order come in Hugging Face's.
Result<std::unique_ptr<TensorSource>> OpenGgufTensors(std::shared_ptr<const GgufFile> gguf,
                                                      const DecoderSpec& spec);

// What tokenizer.json and tokenizer_config.json would say.
struct GgufTokenizer {
  Json tokenizer, tokenizer_config;
};
Result<GgufTokenizer> ReadGgufTokenizer(const GgufFile& gguf);

}  // namespace pinion
