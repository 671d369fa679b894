#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/checkpoint/gguf_header.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/field_names.h"
#include "engine/spec/spec.h"

namespace pinion {

// A GGUF file: weights, configuration and tokenizer in one file, or in several parts
// ("NAME-00001-of-00003.gguf"). Its contents are translated here to the forms that the rest of
// Pinion reads; nothing else knows the format.
struct GgufFile {
  std::vector<std::shared_ptr<const MappedFile>> files;  // the parts, by number
  GgufHeader header;                                     // metadata of the first, tensors of all

  const MappedFile& FileOf(const GgufTensor& tensor) const { return *files[tensor.part]; }
  const std::byte* Data(const GgufTensor& tensor) const {
    return FileOf(tensor).data() + tensor.begin;
  }
};

// Opens a file or, if its name is that of a part, all parts.
Result<std::shared_ptr<const GgufFile>> OpenGguf(const std::string& path);

// The equivalent of config.json. Architectures that are not in gguf_architectures.cc, and metadata
// that would change the mathematics in ways Pinion does not compute, are errors. `names`, if it is
// not null, becomes the metadata's keys by the fields of the result that were read from them.
Result<Json> GgufConfig(const GgufFile& gguf, FieldNames* names = nullptr);

// Sets what the file states in its tensors: frequency factors, which become the rope's
// wave_factors, norms without an offset, and matrices that checkpoints hold together.
Status ApplyGguf(const GgufFile& gguf, DecoderSpec& spec);

// The tensors under the names of `spec`. Rows and columns that converters reorder are returned in
// the order of Hugging Face; each expert is a tensor by itself.
Result<std::unique_ptr<TensorSource>> OpenGgufTensors(std::shared_ptr<const GgufFile> gguf,
                                                      const DecoderSpec& spec);

// The equivalents of tokenizer.json and tokenizer_config.json.
struct GgufTokenizer {
  Json tokenizer, tokenizer_config;
};
Result<GgufTokenizer> ReadGgufTokenizer(const GgufFile& gguf);

}  // namespace pinion
