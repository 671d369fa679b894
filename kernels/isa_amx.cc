// AMX: products of bfloat16 on tiles, and the probes of their peak rates.

#include "kernels/impl/vec_avx512.inl.h"
//
#include "kernels/impl/amx_tiles.inl.h"
#include "kernels/impl/attention.inl.h"
#include "kernels/impl/attention_tiles.inl.h"
#include "kernels/impl/operand_avx512_bf16.inl.h"
#include "kernels/impl/probes.h"
#include "kernels/impl/tables.h"
#include "kernels/impl/tile_gemm.inl.h"
#include "kernels/impl/tile_probe.inl.h"

namespace pinion::kernels::impl {
namespace {

// Fours of signed bytes, summed in int32.
struct AmxS8 : AmxTiles {
  template <int sum, int a, int b>
  static void Dot() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
  }
};

constexpr uint64_t kBf16Operations = 2 * 16 * 16 * 32, kS8Operations = 2 * 16 * 16 * 64;

constexpr size_t StepsOf(size_t k_padded) { return k_padded * sizeof(Bf16) / kTileBytes; }

}  // namespace

void AmxGemmBf16(const GemmArgs& args) {
  TileGemm<AmxPairs>({.x = static_cast<const std::byte*>(args.x),
                      .x_stride = args.row_stride() * sizeof(Bf16),
                      .w = args.w,
                      .w_stride = StepsOf(args.k_padded) * kTileBlockBytes,
                      .y = reinterpret_cast<std::byte*>(args.y),
                      .y_stride = args.ldy * sizeof(float),
                      .rows = args.rows,
                      .steps = StepsOf(args.k_padded),
                      .blocks = args.blocks});
}

ProductCut AmxCutBf16(size_t rows, size_t k_padded) { return TileCut(rows, StepsOf(k_padded)); }
static_assert(kBytesOfX / kFewBlocksRows == kSpreadColumns * sizeof(Bf16) &&
              kTileBytes == kSpreadGap * sizeof(Bf16));
size_t AmxStrideBf16(size_t rows, size_t k_padded) {
  return TileStride(rows, StepsOf(k_padded)) / sizeof(Bf16);
}

// Tiles pay even for a single row: a tile of keys takes 8 clocks to load and at most 16 to
// multiply, while VDPBF16PS, which CPUs with AMX have issued once in two clocks so far, takes 32
// clocks a row for as many keys.
void AmxAttention(const AttentionArgs& args) {
  if (!FillsTiles(args)) return Avx512Bf16Attention(args);
  AttentionAs<OperandBf16, TileProducts<OperandBf16, AmxPairs>>(args);
}

uint64_t ProbeAmxBf16(size_t steps) { return ProbeDots<AmxPairs>(steps, kBf16Operations); }
uint64_t ProbeAmxS8(size_t steps) { return ProbeDots<AmxS8>(steps, kS8Operations); }

uint64_t ProbeLoadedAmxBf16(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes,
                            size_t steps) {
  return ProbeLoadedDots<AmxPairs>(a, a_bytes, b, b_bytes, steps, kBf16Operations);
}
uint64_t ProbeLoadedAmxS8(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes,
                          size_t steps) {
  return ProbeLoadedDots<AmxS8>(a, a_bytes, b, b_bytes, steps, kS8Operations);
}

}  // namespace pinion::kernels::impl
