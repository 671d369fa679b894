#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pinion {

// The type of a vector's elements as bytes: IEEE 754's binary32 and binary16, bfloat16, and the two
// floats of 8 bits of arXiv:2209.05433.
enum class ElementType { kF32, kF16, kBf16, kE4m3, kE5m2 };
size_t SizeOf(ElementType type);
// vLLM's names: "float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2".
std::string_view Name(ElementType type);
std::optional<ElementType> ElementTypeOf(std::string_view name);
std::string ElementTypeNames();  // joined by ", "

// How an answer has its vectors.
struct VectorForm {
  // JSON's numbers; text in JSON; nothing but bytes, with or without a header that describes them.
  enum class Kind { kNumbers, kBase64, kBytes, kBytesOnly };
  Kind kind = Kind::kNumbers;
  ElementType type = ElementType::kF32;  // of all but numbers
  std::string order = "native";          // of an element's bytes: "native", "little" or "big"

  bool json() const { return kind == Kind::kNumbers || kind == Kind::kBase64; }
};

// Appends the values as a list in JSON: each the shortest text that reads back as the same float,
// null for values that JSON has no number for.
void AppendNumbers(std::string& out, std::span<const float> values);
void AppendNumber(std::string& out, float value);
// Appends the values' bytes, rounded to the nearest value of the type, to the even one of two.
// Beyond the largest, kE4m3 has that, the others infinity.
void AppendElements(std::string& out, std::span<const float> values, const VectorForm& form);
// One bit for each value, 1 if it is at least 0, the first in the highest bit of the first byte.
// `values`: a multiple of 8.
std::string SignBits(std::span<const float> values);

}  // namespace pinion
