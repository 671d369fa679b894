#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/checkpoint/embedder.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/scheme.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/spec.h"
#include "engine/text/grammar.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// A model that was found, described and checked; its weights have not been read yet.
struct ModelFiles {
  std::string name;    // as given by the user
  std::string folder;  // empty for a preset and a GGUF file
  Json config;         // config.json, or its equivalent from a GGUF file; see hf_quant_config.h
  std::optional<Json> generation_config;
  DecoderSpec spec;                   // eos_ids of all its files
  std::optional<QuantScheme> scheme;  // of config.json's quantization_config
  // Of a folder in sentence-transformers' layout, or of a GGUF file that says how it pools; the
  // model is then without a head.
  std::optional<EmbedderSpec> embedder;
  // Of a GGUF file that says that it is a reranker and generates: the rows of "yes" and "no", all
  // of its head that is sure to be there; the model is then without a head.
  std::optional<DenseSpec> yes_no_head;
  std::shared_ptr<const GgufFile> gguf;  // null unless MODEL is a GGUF file
};

// MODEL is a folder, a GGUF file, `preset:NAME`, or `org/name` in the local Hugging Face cache
// (HF_HUB_CACHE, HF_HOME, ~/.cache/huggingface/hub; the snapshot that refs/main names). Errors say
// where Pinion looked.
Result<ModelFiles> FindModel(const std::string& model);

// Opens the weights (presets make theirs up from `seed`) and checks that every tensor that the spec
// names exists in the right shape.
Result<std::unique_ptr<TensorSource>> OpenWeights(const ModelFiles& files, uint64_t seed = 0);

// The tokenizer alone: cheap, for front ends.
Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const ModelFiles& files);

// The same tokenizer as grammars want it; of a folder without a tokenizer.json there is none.
GrammarVocabulary GrammarVocabularyOf(const ModelFiles& files);

}  // namespace pinion
