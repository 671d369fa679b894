#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels/impl/tables.h"

namespace pinion::kernels {
namespace {

// Another path's functions under the name of `isa`.
Table Renamed(Table table, Isa isa) {
  table.isa = isa;
  return table;
}

Table MakeAvx512Bf16Table() {
  Table table = Renamed(impl::kAvx512Table, Isa::kAvx512Bf16);
  table.gemm_bf16 = impl::Avx512Bf16Gemm;
  table.attention = impl::Avx512Bf16Attention;
  return table;
}

Table MakeAmxTable() {
  Table table = Renamed(impl::kAvx512Table, Isa::kAmx);
  table.gemm_bf16 = impl::AmxGemmBf16;
  table.stride_bf16 = impl::AmxStrideBf16;
  table.attention = impl::AmxAttention;
  return table;
}

const Table& Compiled(Isa isa) {
  static const Table avx2_vnni = Renamed(impl::kAvx2Table, Isa::kAvx2Vnni);
  static const Table avx512_vnni = Renamed(impl::kAvx512Table, Isa::kAvx512Vnni);
  static const Table avx512_bf16 = MakeAvx512Bf16Table();
  static const Table amx = MakeAmxTable();
  switch (isa) {
    case Isa::kScalar:
      return impl::kScalarTable;
    case Isa::kAvx2:
      return impl::kAvx2Table;
    case Isa::kAvx2Vnni:
      return avx2_vnni;
    case Isa::kAvx512:
      return impl::kAvx512Table;
    case Isa::kAvx512Vnni:
      return avx512_vnni;
    case Isa::kAvx512Bf16:
      return avx512_bf16;
    case Isa::kAmx:
      return amx;
  }
  __builtin_unreachable();
}

}  // namespace

const Table& TableFor(Isa isa) {
  const std::vector<Isa>& usable = UsableIsas();
  if (std::find(usable.begin(), usable.end(), isa) == usable.end()) {
    std::fprintf(stderr, "kernels: table of %s requested, but this process cannot run it\n",
                 Name(isa));
    std::abort();
  }
  return Compiled(isa);
}

}  // namespace pinion::kernels
