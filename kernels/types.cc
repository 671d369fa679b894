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
Bf16 ToBf16(float value) { return impl::NarrowBf16(value); }
F16 ToF16(float value) { return impl::NarrowF16(value); }

}  // namespace pinion::kernels
