#include "kernels/probe.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels/impl/probes.h"

namespace pinion::kernels {
namespace {

Probes Renamed(Probes probes, Isa isa) {
  probes.isa = isa;
  return probes;
}

Probes MakeAmxProbes() {
  Probes probes = Renamed(impl::kAvx512Bf16Probes, Isa::kAmx);
  probes.multiply_bf16 = impl::ProbeAmxBf16;
  return probes;
}

const Probes& Compiled(Isa isa) {
  static const Probes amx = MakeAmxProbes();
  static const Probes avx2_vnni = Renamed(impl::kAvx2Probes, Isa::kAvx2Vnni);
  static const Probes avx512_vnni = Renamed(impl::kAvx512Probes, Isa::kAvx512Vnni);
  switch (isa) {
    case Isa::kScalar:
      return impl::kScalarProbes;
    case Isa::kAvx2:
      return impl::kAvx2Probes;
    case Isa::kAvx2Vnni:
      return avx2_vnni;
    case Isa::kAvx512:
      return impl::kAvx512Probes;
    case Isa::kAvx512Vnni:
      return avx512_vnni;
    case Isa::kAvx512Bf16:
      return impl::kAvx512Bf16Probes;
    case Isa::kAmx:
      return amx;
  }
  __builtin_unreachable();
}

}  // namespace

const Probes& ProbesFor(Isa isa) {
  const std::vector<Isa>& usable = UsableIsas();
  if (std::find(usable.begin(), usable.end(), isa) == usable.end()) {
    std::fprintf(stderr, "kernels: probes of %s requested, but this process cannot run them\n",
                 Name(isa));
    std::abort();
  }
  return Compiled(isa);
}

const void* ProbeChain(const void* start, size_t loads) {
  const void* at = start;
  for (; loads > 0; --loads) {
    __builtin_memcpy(&at, at, sizeof(at));
    asm volatile("" : "+r"(at));
  }
  return at;
}

}  // namespace pinion::kernels
