#include "kernels/e4m3.h"

#include "kernels/impl/e4m3_tables.h"

namespace pinion::kernels {
namespace {

// The first CPUs with AVX-512's BF16 have no VBMI.
bool HasVbmi() { return __builtin_cpu_supports("avx512vbmi"); }

}  // namespace

const E4m3Table& E4m3TableFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return impl::kE4m3Scalar;
    case Isa::kAvx2:
    case Isa::kAvx2Vnni:
      return impl::kE4m3Avx2;
    case Isa::kAvx512:
    case Isa::kAvx512Vnni:
      return impl::kE4m3Avx512;
    case Isa::kAmx:
      if (HasVbmi()) return impl::kE4m3Amx;
      [[fallthrough]];
    case Isa::kAvx512Bf16:
      return HasVbmi() ? impl::kE4m3Avx512Bf16 : impl::kE4m3Avx512;
  }
  __builtin_unreachable();
}

}  // namespace pinion::kernels
