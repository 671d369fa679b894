#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// How a text's last hidden states become one vector: those of one token, or of all of them.
enum class PoolingKind {
  kFirst,         // [CLS]
  kLast,          // the last token's
  kMean,          // the sum over the number of tokens
  kMeanSqrt,      // the sum over the root of the number of tokens
  kWeightedMean,  // token i, counted from 1, has weight i
  kMax            // of each element
};
const char* Name(PoolingKind kind);

// y = activation(weight x + bias): MODULE.weight [outputs][inputs] and MODULE.bias.
struct DenseSpec {
  enum class Activation { kNone, kTanh, kRelu, kGelu, kSigmoid };
  std::string folder;  // whose model.safetensors holds them; empty: they are among the model's
  std::string module = "linear";
  size_t inputs = 0, outputs = 0;
  bool bias = true;
  Activation activation = Activation::kTanh;
};

// How texts become embeddings, in sentence-transformers' layout: the modules after the transformer
// in modules.json, and the folder's prompts.
struct EmbedderSpec {
  PoolingKind pooling = PoolingKind::kLast;
  std::vector<DenseSpec> dense;                // in order
  bool normalises = false;                     // to length 1
  std::map<std::string, std::string> prompts;  // by name, each put before a text
  std::string default_prompt;                  // the name of the one that is used unasked; or empty
  std::optional<size_t> max_tokens;            // of a text, its special tokens included

  // Of an embedding of a model whose hidden states have `hidden` elements.
  size_t width(size_t hidden) const { return dense.empty() ? hidden : dense.back().outputs; }
};

// Of a model's folder; nothing if it has no modules.json, or is a cross-encoder's. Errors name the
// file and what Pinion does not compute.
Result<std::optional<EmbedderSpec>> ReadEmbedder(const std::string& folder);

// The text behind the prompt of that name, or the default one's if the name is empty. kUsage for an
// unknown name, with those that there are.
Result<std::string> WithPrompt(const EmbedderSpec& spec, const std::string& prompt_name,
                               const std::string& text);

}  // namespace pinion
