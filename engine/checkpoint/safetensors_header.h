#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// One tensor as a safetensors header describes it; checked.
struct HeaderEntry {
  std::string name;
  std::string dtype;            // "BF16", ...; may be one that we cannot use
  std::vector<int64_t> shape;   // every dimension >= 0, the product fits 63 bits
  uint64_t begin = 0, end = 0;  // bytes, counted from the file's beginning
};

// Parses and checks the header of a safetensors file; `file` is the whole file, of which only the
// first bytes are read. Refused: a length beyond the file or 100 MB, broken JSON, shapes that
// overflow, offsets outside the data or the wrong way round, sizes that contradict dtype and shape,
// repeated names, overlapping tensors. Gaps are fine. The caller adds the file's name to the error.
// Source:
// https://github.com/huggingface/safetensors#format
Result<std::vector<HeaderEntry>> ReadSafetensorsHeader(std::string_view file);

}  // namespace pinion
