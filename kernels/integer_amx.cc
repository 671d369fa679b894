// AMX-INT8: tiles for many rows; for few, AVX-512 with VNNI, which streams codes as fast.

#include "kernels/impl/int_avx512.inl.h"

namespace pinion::kernels::impl {
namespace {

Vec Dot(Vec w, Vec x, Vec sum) { return Bits(_mm512_dpbusd_epi32(Ints(sum), Ints(w), Ints(x))); }

}  // namespace
}  // namespace pinion::kernels::impl

#include "kernels/impl/int_fours.inl.h"
#include "kernels/impl/integer.inl.h"
//
#include "kernels/impl/amx_tiles.inl.h"
#include "kernels/impl/int_dequantise.inl.h"
#include "kernels/impl/int_round.inl.h"
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

struct AmxVectors {
  static void Unpack(const std::byte* src, std::byte* low, std::byte* high) {
    const Vec nibbles = Bits(_mm512_loadu_si512(src));
    _mm512_store_si512(low, Ints(LowNibbles(nibbles)));
    _mm512_store_si512(high, Ints(HighNibbles(nibbles)));
  }
  static void WholeRow(const IntLayout& layout, const std::byte* row, const std::byte* tail,
                       const float* sums, float* y) {
    FinishWholeRow(layout, row, tail, sums, y);
  }
  static void AddGroup(const IntLayout& layout, const std::byte* scales, const GroupSums& sums,
                       size_t row, size_t rows, float (*totals)[kBlockN]) {
    const auto add = layout.has_offsets ? impl::AddGroup<GroupScales::kF16AndOffsets>
                                        : impl::AddGroup<GroupScales::kF16>;
    const size_t outputs = sums.outputs;
    for (size_t output = 0; output < outputs; output += kAddedOutputs)
      add(layout, scales, sums.output + output, sums.x_sums + row, rows,
          {sums.sums + row * outputs + output, outputs},
          {totals[row] + sums.output + output, kBlockN});
  }
  static void AddOutliers(const IntLayout& layout, const std::byte* x, size_t rows,
                          const std::byte* block, float* y, size_t ldy) {
    impl::AddOutliers(layout, x, rows, block, y, ldy);
  }
  static void ScaleRow(float row_scale, const float* scales, const float* sums, float* y) {
    impl::ScaleRow(row_scale, scales, sums, y);
  }
};

void AmxIntGemm(const IntLayout& layout, const IntGemmArgs& args) {
  if (FitsTiles(layout, args.rows)) {
    IntTileGemm<AmxSU8, AmxVectors>(layout, args);
  } else {
    IntGemm(layout, args);
  }
}

ProductCut AmxIntCut(const IntLayout& layout, size_t rows) {
  return FitsTiles(layout, rows) ? IntTileCut(layout, rows) : ProductCut{};
}

}  // namespace

const IntTable kIntAmx = {"amx_int8", Round, AmxIntGemm, Dequantise, AmxIntCut};

}  // namespace pinion::kernels::impl
