#include "kernels/types.h"

#include "kernels/impl/half.inl.h"

namespace pinion::kernels {

const char* Name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return "float32";
    case Dtype::kBf16:
      return "bfloat16";
    case Dtype::kF16:
      return "float16";
  }
  __builtin_unreachable();
}

const char* Name(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kF32:
      return "float32";
    case KvDtype::kBf16:
      return "bfloat16";
    case KvDtype::kF16:
      return "float16";
    case KvDtype::kI8:
      return "int8";
    case KvDtype::kE5m2:
      return "fp8_e5m2";
    case KvDtype::kE4m3:
      return "fp8_e4m3";
  }
  __builtin_unreachable();
}

float ToFloat(Bf16 value) { return impl::Widen(value); }
float ToFloat(F16 value) { return impl::Widen(value); }
float ToFloat(E4m3 value) { return impl::Widen(value); }
Bf16 ToBf16(float value) { return impl::NarrowBf16(value); }
F16 ToF16(float value) { return impl::NarrowF16(value); }

E4m3 ToE4m3(float value) {
  const uint32_t bits = impl::AsBits(value), sign = bits >> 24 & 0x80;
  const float magnitude = impl::AsFloat(bits & 0x7fffffff);
  if (magnitude != magnitude) return {static_cast<uint8_t>(sign | 0x7f)};
  if (magnitude >= kLargestE4m3) return {static_cast<uint8_t>(sign | 0x7e)};
  // Below 2^-6 steps are 2^-9, which the float adder rounds to.
  if (magnitude < 0x1p-6f) {
    const float steps = magnitude * 0x1p9f + 0x1p23f;
    return {static_cast<uint8_t>(sign | (impl::AsBits(steps) & 0xf))};
  }
  const uint32_t whole = impl::AsBits(magnitude);
  const uint32_t rounded = whole + 0x7ffff + (whole >> 20 & 1);
  return {static_cast<uint8_t>(sign | ((rounded >> 20) - (120 << 3)))};
}

}  // namespace pinion::kernels
