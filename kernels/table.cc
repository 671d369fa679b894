#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels/impl/tables.h"

namespace pinion::kernels {
namespace {

// Products of bfloat16 on tiles; everything else is AVX-512's.
Table MakeAmxTable() {
  Table table = impl::kAvx512Bf16Table;
  table.isa = Isa::kAmx;
  table.gemm_bf16 = impl::AmxGemmBf16;
  table.attention = impl::AmxAttention;
  return table;
}

const Table& Compiled(Isa isa) {
  static const Table amx = MakeAmxTable();
  switch (isa) {
    case Isa::kScalar:
      return impl::kScalarTable;
    case Isa::kAvx2:
      return impl::kAvx2Table;
    case Isa::kAvx512:
      return impl::kAvx512Table;
    case Isa::kAvx512Bf16:
      return impl::kAvx512Bf16Table;
    case Isa::kAmx:
      return amx;
  }
  __builtin_unreachable();
}

}  // namespace

const Table& TableFor(Isa isa) {
  const std::vector<Isa>& usable = UsableIsas();
  if (std::find(usable.begin(), usable.end(), isa) == usable.end()) {
    std::fprintf(stderr, "kernels: the table of %s was asked for, which cannot run here\n",
                 Name(isa));
    std::abort();
  }
  return Compiled(isa);
}

}  // namespace pinion::kernels
