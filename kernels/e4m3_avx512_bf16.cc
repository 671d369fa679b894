// Weights in e4m3 with AVX-512's BF16 and VBMI. Activations in float32 are AVX-512's.

#include "kernels/impl/vec_avx512.inl.h"
//
#include "kernels/impl/e4m3_avx512_bf16.inl.h"
//
#include "kernels/impl/e4m3.inl.h"
#include "kernels/impl/e4m3_round.inl.h"

namespace pinion::kernels::impl {
namespace {

void Multiply(const IntLayout& layout, const E4m3GemmArgs& args) {
  args.x_type == Dtype::kF32 ? kE4m3Avx512.gemm(layout, args)
                             : E4m3Gemm<OperandE4m3Pairs, Bf16>(layout, args);
}

}  // namespace

const E4m3Table kE4m3Avx512Bf16 = {"avx512_bf16", Multiply, Round};

}  // namespace pinion::kernels::impl
