#include "engine/serve/vector_form.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "engine/base/check.h"
#include "kernels/types.h"

namespace pinion {
namespace {

struct Element {
  ElementType type;
  std::string_view name;
  size_t bytes;
};

constexpr auto kElements = std::to_array<Element>({{ElementType::kF32, "float32", 4},
                                                   {ElementType::kF16, "float16", 2},
                                                   {ElementType::kBf16, "bfloat16", 2},
                                                   {ElementType::kE4m3, "fp8_e4m3", 1},
                                                   {ElementType::kE5m2, "fp8_e5m2", 1}});

const Element& ElementOf(ElementType type) { return kElements[static_cast<size_t>(type)]; }

// 1 sign, 5 exponent and 2 mantissa bits, bias 15, with subnormals, infinities and NaN.
uint8_t ToE5m2(float value) {
  constexpr int kBias = 15, kLeastExponent = 1 - kBias;
  constexpr float kTooLarge = 61440;  // halfway between the largest, 57344, and the next
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  if (std::isnan(value)) return sign | 0x7f;
  const float size = std::fabs(value);
  if (size >= kTooLarge) return sign | 0x7c;
  const int exponent = size == 0 ? kLeastExponent : std::max(std::ilogb(size), kLeastExponent);
  // In quarters of the power of two: 4 to 8 of normal numbers, of which 8 carries over.
  const int quarters = static_cast<int>(std::nearbyint(std::ldexp(size, 2 - exponent)));
  return static_cast<uint8_t>(sign | (((exponent + kBias) * 4) + quarters - 4));
}

uint32_t BitsOf(float value, ElementType type) {
  switch (type) {
    case ElementType::kF32:
      break;
    case ElementType::kF16:
      return kernels::ToF16(value).bits;
    case ElementType::kBf16:
      return kernels::ToBf16(value).bits;
    case ElementType::kE4m3:
      return kernels::ToE4m3(value).bits;
    case ElementType::kE5m2:
      return ToE5m2(value);
  }
  return std::bit_cast<uint32_t>(value);
}

}  // namespace

size_t SizeOf(ElementType type) { return ElementOf(type).bytes; }

std::string_view Name(ElementType type) { return ElementOf(type).name; }

std::optional<ElementType> ElementTypeOf(std::string_view name) {
  for (const Element& element : kElements)
    if (element.name == name) return element.type;
  return std::nullopt;
}

std::string ElementTypeNames() {
  std::string names;
  for (const Element& element : kElements) {
    if (!names.empty()) names += ", ";
    names += element.name;
  }
  return names;
}

void AppendNumber(std::string& out, float value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value);
  out.append(text, end.ptr);
}

void AppendNumbers(std::string& out, std::span<const float> values) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    AppendNumber(out, values[i]);
  }
  out += ']';
}

void AppendElements(std::string& out, std::span<const float> values, const VectorForm& form) {
  static_assert(std::endian::native == std::endian::little, "'native' is 'little' here");
  const size_t bytes = SizeOf(form.type);
  const bool big = form.order == "big";
  out.reserve(out.size() + values.size() * bytes);
  for (const float value : values) {
    const uint32_t bits = BitsOf(value, form.type);
    for (size_t i = 0; i < bytes; ++i)
      out += static_cast<char>(bits >> (8 * (big ? bytes - 1 - i : i)) & 0xff);
  }
}

std::string SignBits(std::span<const float> values) {
  CHECK(values.size() % 8 == 0) << values.size() << " values";
  std::string bits;
  for (size_t i = 0; i < values.size(); i += 8) {
    unsigned byte = 0;
    for (size_t j = 0; j < 8; ++j) byte = byte << 1 | (values[i + j] >= 0 ? 1 : 0);
    bits += static_cast<char>(byte);
  }
  return bits;
}

}  // namespace pinion
