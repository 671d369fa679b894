// In place of the kernels, which the fuzzers do not compile: what checking options and reading
// floats ask of them.

#include <cstring>

#include "kernels/kernels.h"
#include "kernels/offered_isas.h"

namespace pinion::kernels {

const IsaOffer& OfferedIsas() {
  static const IsaOffer offer{UsableIsas(), ""};
  return offer;
}

void Convert(std::byte* dst, Dtype, const std::byte* src, Dtype src_type, size_t n) {
  for (size_t i = 0; i < n; ++i, dst += sizeof(float), src += SizeOf(src_type)) {
    float value;
    if (src_type == Dtype::kF32) {
      std::memcpy(&value, src, sizeof value);
    } else {
      uint16_t bits;
      std::memcpy(&bits, src, sizeof bits);
      value = src_type == Dtype::kF16 ? ToFloat(F16{bits}) : ToFloat(Bf16{bits});
    }
    std::memcpy(dst, &value, sizeof value);
  }
}

}  // namespace pinion::kernels
