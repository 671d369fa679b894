#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/checkpoint/gguf_blocks.h"

namespace pinion {

// One tensor of a GGUF file; the header check has seen that its bytes lie inside the file, that no
// other tensor's do, and that rows are whole blocks.
struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;
  std::vector<int64_t> shape;     // slowest dimension first, as everywhere else in Pinion
  uint64_t begin = 0, bytes = 0;  // from the beginning of the file
  size_t part = 0;                // the file, if there are several
};

struct GgufHeader {
  Json metadata;  // an object: key -> value
  std::vector<GgufTensor> tensors;

  const GgufTensor* Find(std::string_view name) const;  // null if there is none
};

// Reads the header of a GGUF file (version 2 or 3, little-endian) that is in memory. The file is
// untrusted: counts, lengths, types, alignment, offsets, overlaps and repeated names are checked,
// and nothing is allocated that the file's own length does not warrant. Source:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
Result<GgufHeader> ReadGgufHeader(std::string_view file);

}  // namespace pinion
