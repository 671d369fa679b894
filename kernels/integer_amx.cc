// AMX-INT8: many rows on tiles, few as AVX-512 with VNNI, which streams codes as fast.

#include "kernels/impl/int_avx512.inl.h"

namespace pinion::kernels::impl {
namespace {

Vec Dot(Vec w, Vec x, Vec sum) { return Bits(_mm512_dpbusd_epi32(Ints(sum), Ints(w), Ints(x))); }

}  // namespace
}  // namespace pinion::kernels::impl

#include "kernels/impl/integer.inl.h"
//
#include "kernels/impl/amx_tiles.inl.h"
#include "kernels/impl/int_dequantise.inl.h"
#include "kernels/impl/int_tiles.inl.h"
#include "kernels/impl/integer_tables.h"

namespace pinion::kernels::impl {
namespace {

// Signed activations times unsigned codes.
struct AmxSU8 : AmxTiles {
  template <int sum, int a, int b>
  static void Dot() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
  }
};

struct VectorEpilogue {
  static void WholeRow(const IntLayout& layout, const std::byte* row, const std::byte* tail,
                       float* y) {
    FinishWholeRow(layout, row, tail, y);
  }
  static void AddGroup(const IntLayout& layout, const float* sums, const F16* scales, int32_t x_sum,
                       bool first, float* y) {
    const auto add = layout.has_offsets ? impl::AddGroup<true> : impl::AddGroup<false>;
    add(sums, scales, layout.lowest * x_sum, static_cast<float>(x_sum), first, y);
  }
  static void ScaleRow(float row_scale, const float* scales, float* y) {
    impl::ScaleRow(row_scale, scales, y);
  }
};

void AmxIntGemm(const IntLayout& layout, const IntGemmArgs& args) {
  if (FitsTiles(layout, args.rows)) {
    IntTileGemm<AmxSU8, VectorEpilogue>(layout, args);
  } else {
    IntGemm(layout, args);
  }
}

}  // namespace

const IntTable kIntAmx = {"amx_int8", Round, AmxIntGemm, Dequantise};

}  // namespace pinion::kernels::impl
