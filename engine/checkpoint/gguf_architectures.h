#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "engine/checkpoint/gguf_header.h"
#include "engine/spec/spec.h"

namespace pinion {

// Metadata `ARCHITECTURE.from` is config.json's `to`.
struct GgufField {
  std::string_view from, to;
};
// config.json's `to` is whether the file has the tensor.
struct GgufPresence {
  std::string_view tensor, to;
};
// The file's name of a tensor that files of other architectures call otherwise.
struct GgufName {
  std::string TensorNames::*ours = nullptr;
  std::string_view theirs;
};

// An architecture by the name that GGUF files give it, as data: how its metadata becomes that of
// config.json, and what the file stores in another way than Hugging Face's checkpoints.
struct GgufArchitecture {
  std::string_view name, hugging_face;
  // Several entries may have a name: the first one whose key is there and not false (and is
  // `when_value` unless that is 0) counts.
  std::string_view when = "";
  int64_t when_value = 0;
  std::string_view with_tensor = "";       // likewise, whose tensor of that name is there
  std::string_view with_tokenizer = "";    // likewise, whose texts are split in that way
  std::span<const GgufField> fields = {};  // beyond those of all
  std::span<const GgufPresence> presences = {};
  // Fields of config.json that files do not state, because all models have them.
  std::string_view constants = "{}";
  std::span<const GgufField> rope_fields = {};  // of rope_scaling, beyond those of all
  std::string_view rope_constants = "{}";       // of rope_scaling, which files do not state
  bool permuted = false;                        // rows of q and k: rotated pairs are neighbours
  bool whole_norms = false;    // norms hold the 1 that Hugging Face's arithmetic adds
  bool gemma_scale = false;    // of products, which files do not state
  bool tiled_values = false;   // DeltaNet: value heads of a key head are apart
  bool latent = false;         // attention: heads' sizes are those of the cache
  bool bidirectional = false;  // every token attends to all of a text
  bool encoder = false;        // BERT's kin: types of tokens, and perhaps a reranker's head
  // The mixer of layers without KV heads, in attention's place, and config.json's list of all
  // mixers ("": it lists the layers that attend instead).
  std::string_view without_heads = "", layer_list = "layer_types";
  std::string_view state_head = "";  // config.json's width of a head with a state
  std::span<const GgufName> renamed = {};
};

std::span<const GgufArchitecture> GgufArchitectures();
// The entry for a file; the error lists the architectures that Pinion reads.
Result<const GgufArchitecture*> FindGgufArchitecture(const GgufHeader& header);
// "gemma2, gemma3, ...", sorted.
std::string GgufArchitectureNames();

}  // namespace pinion
