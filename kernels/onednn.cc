#include "kernels/kernels.h"

namespace pinion::kernels {

bool LimitOneDnn(Isa isa) {
  static const Isa limit = isa;
  return limit == isa;
}

size_t OneDnnRows(Isa isa, Dtype weights) { return SIZE_MAX; }

void Gemm(const Table& table, Dtype weights, const GemmArgs& args) {
  switch (weights) {
    case Dtype::kF32:
      return table.gemm_f32(args);
    case Dtype::kBf16:
      return table.gemm_bf16(args);
    case Dtype::kF16:
      return table.gemm_f16(args);
  }
}

}  // namespace pinion::kernels
