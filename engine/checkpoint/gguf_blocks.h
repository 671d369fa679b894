#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pinion {

// A type of GGUF tensors: blocks of `elements` consecutive weights of a row in `bytes` bytes.
// Source: ggml's block structures (ggml-common.h) and its reference dequantisers (ggml-quants.c),
// whose results `decode` gives bit for bit with QuantisedTensor's formula.
struct GgufType {
  uint32_t id;  // as in the file
  std::string_view name;
  size_t elements, bytes;
  // Of the quantised types:
  size_t group = 0;  // weights that share a scale; 0: the type holds plain numbers
  int lowest = 0, highest = 0;
  bool has_offsets = false;
  // One block: codes [elements], scales and offsets [elements / group].
  void (*decode)(const std::byte* block, int8_t* codes, float* scales, float* offsets) = nullptr;
  bool e2m1 = false;  // CodeRange::e2m1
};

// The type of an id; nullptr if Pinion does not read it.
const GgufType* FindGgufType(uint32_t id);
// "IQ2_XXS", whether Pinion reads it or not; "type 99" of an unknown id.
std::string GgufTypeName(uint32_t id);
// "F32, F16, ...": the types that Pinion reads, for messages.
std::string GgufTypeNames();

}  // namespace pinion
