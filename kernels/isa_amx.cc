// AMX: products of bfloat16 on tiles, and what tiles can do at most.

#include "kernels/impl/vec_avx512.inl.h"
//
#include "kernels/impl/amx_tiles.inl.h"
#include "kernels/impl/attention.inl.h"
#include "kernels/impl/attention_tiles.inl.h"
#include "kernels/impl/operand_avx512_bf16.inl.h"
#include "kernels/impl/probes.h"
#include "kernels/impl/tables.h"

namespace pinion::kernels::impl {
namespace {

// Pairs of bfloat16, summed in float32.
struct AmxBf16 : AmxTiles {
  template <int sum, int a, int b>
  static void Dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
  }
};

// Fours of signed bytes, summed in int32.
struct AmxS8 : AmxTiles {
  template <int sum, int a, int b>
  static void Dot() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
  }
};

// Four sums: a product takes 52 clocks and one starts every 16.
template <typename Tiles>
uint64_t ProbeDots(size_t steps, uint64_t operations) {
  constexpr uint64_t kProducts = 4;
  Tiles::Configure(TileShape());
  ForEach<6>([]<int t>() { Tiles::template Zero<t>(); });
  for (size_t step = 0; step < steps; ++step) {
    ForEach<kProducts>([]<int sum>() { Tiles::template Dot<sum, 4, 5>(); });
  }
  Tiles::Release();
  return steps * kProducts * operations;
}

}  // namespace

void AmxGemmBf16(const GemmArgs& args) {
  TileGemm<AmxBf16>({.x = static_cast<const std::byte*>(args.x),
                     .x_stride = args.k_padded * sizeof(Bf16),
                     .w = args.w,
                     .y = reinterpret_cast<std::byte*>(args.y),
                     .y_stride = args.ldy * sizeof(float),
                     .rows = args.rows,
                     .steps = args.k_padded * sizeof(Bf16) / kTileBytes,
                     .blocks = args.blocks});
}

// A single row as well: a tile of keys is loaded in 8 clocks and multiplied in at most 16, while
// VDPBF16PS, at one in two clocks where AMX has been so far, takes 32 a row for as many keys.
void AmxAttention(const AttentionArgs& args) {
  if (!FillsTiles(args)) return Avx512Bf16Attention(args);
  AttentionAs<OperandBf16, TileProducts<OperandBf16, AmxBf16>>(args);
}

uint64_t ProbeAmxBf16(size_t steps) { return ProbeDots<AmxBf16>(steps, 2 * 16 * 16 * 32); }
uint64_t ProbeAmxS8(size_t steps) { return ProbeDots<AmxS8>(steps, 2 * 16 * 16 * 64); }

}  // namespace pinion::kernels::impl
