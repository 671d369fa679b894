// Weights in e4m3 with AMX: tiles for many rows; for few, AVX-512 with BF16, which streams them as
// fast.

#include "kernels/impl/vec_avx512.inl.h"
//
#include "kernels/impl/e4m3_avx512_bf16.inl.h"
//
#include "kernels/impl/amx_tiles.inl.h"
#include "kernels/impl/e4m3.inl.h"
#include "kernels/impl/e4m3_round.inl.h"
#include "kernels/impl/e4m3_tiles.inl.h"

namespace pinion::kernels::impl {
namespace {

struct VectorSteps {
  static void Convert(const std::byte* w, size_t columns, std::byte* dst) {
    ConvertChunk<OperandE4m3Pairs>({.w = w, .k = 0, .columns = columns, .ahead = 0, .scales = {}},
                                   dst);
  }
  static void Add(const float (*sums)[kBlockN], const float* scales, size_t rows, float* y,
                  size_t ldy, bool accumulate) {
    for (size_t i = 0; i < kBlockN; i += kLanes) {
      const Vec scale = Load(scales + i);
      for (size_t row = 0; row < rows; ++row) {
        float* dst = y + row * ldy + i;
        Store(dst, Fma(Load(sums[row] + i), scale, accumulate ? Load(dst) : Set(0)));
      }
    }
  }
};

void Multiply(const IntLayout& layout, const E4m3GemmArgs& args) {
  if (FitsE4m3Tiles(layout, args.x_type, args.rows)) {
    E4m3TileGemm<AmxPairs, VectorSteps>(layout, args);
  } else {
    kE4m3Avx512Bf16.gemm(layout, args);
  }
}

ProductCut Cut(const IntLayout& layout, Dtype x_type, size_t rows) {
  return FitsE4m3Tiles(layout, x_type, rows) ? E4m3TileCut(layout, rows) : ProductCut{};
}

}  // namespace

const E4m3Table kE4m3Amx = {"amx", Multiply, Round, Cut};

}  // namespace pinion::kernels::impl
