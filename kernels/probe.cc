#include "kernels/probe.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels/impl/probes.h"

namespace pinion::kernels {
namespace {

Probes MakeAmxProbes() {
  Probes probes = impl::kAvx512Bf16Probes;
  probes.isa = Isa::kAmx;
  probes.multiply_bf16 = impl::ProbeAmxBf16;
  return probes;
}

const Probes& Compiled(Isa isa) {
  static const Probes amx = MakeAmxProbes();
  switch (isa) {
    case Isa::kScalar:
      return impl::kScalarProbes;
    case Isa::kAvx2:
      return impl::kAvx2Probes;
    case Isa::kAvx512:
      return impl::kAvx512Probes;
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
    std::fprintf(stderr, "kernels: the probes of %s were asked for, which cannot run here\n",
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
