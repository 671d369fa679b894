// Weights in e4m3 with AVX2.

#include "kernels/impl/vec_avx2.inl.h"
//
#include "kernels/impl/e4m3_avx2.inl.h"
//
#include "kernels/impl/e4m3.inl.h"
#include "kernels/impl/e4m3_round.inl.h"

namespace pinion::kernels::impl {
namespace {

void Multiply(const IntLayout& layout, const E4m3GemmArgs& args) {
  args.x_type == Dtype::kF32 ? E4m3Gemm<OperandE4m3, float>(layout, args)
                             : E4m3Gemm<OperandE4m3, Bf16>(layout, args);
}

}  // namespace

const E4m3Table kE4m3Avx2 = {"avx2", Multiply, Round};

}  // namespace pinion::kernels::impl
