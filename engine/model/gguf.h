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

// A GGUF file: weights, configuration and tokenizer in one file. Its contents are translated here
// to the forms that the rest of Pinion reads; nothing else knows the format.
struct GgufFile {
  std::shared_ptr<const MappedFile> file;
  GgufHeader header;
};

Result<std::shared_ptr<const GgufFile>> OpenGguf(const std::string& path);

// The equivalent of config.json. Architectures: llama (Mistral's too), qwen2, qwen3; others, and
// metadata that would change the mathematics in ways Pinion does not compute, are errors.
Result<Json> GgufConfig(const GgufFile& gguf);

// Some files carry frequency factors as a tensor instead of a rope scaling: they become the rope's
// wave_factors.
Status ApplyRopeFactors(const GgufFile& gguf, DecoderSpec& spec);

// The tensors under the names of `spec`. Rows of q and k, which the `llama` architecture permutes,
// are returned in Hugging Face's order.
Result<std::unique_ptr<TensorSource>> OpenGgufTensors(std::shared_ptr<const GgufFile> gguf,
                                                      const DecoderSpec& spec);

// The equivalents of tokenizer.json and tokenizer_config.json.
struct GgufTokenizer {
  Json tokenizer, tokenizer_config;
};
Result<GgufTokenizer> ReadGgufTokenizer(const GgufFile& gguf);

}  // namespace pinion
