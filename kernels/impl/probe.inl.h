#pragma once

// The probes of a vector ISA. Include the ISA's vector and math.inl.h first.

#include "kernels/impl/probes.h"

namespace pinion::kernels::impl {
namespace {

// Independent sums: enough to cover a latency of 4 to 6 clocks at 2 multiply-adds per clock, few
// enough for the registers (16 with AVX2, 32 with AVX-512).
constexpr size_t kChains = kLanes == 16 ? 16 : 12;

// Makes the compiler hold `v` in a register here and forget its value.
void Opaque(Vec& v) { asm volatile("" : "+x"(v)); }

// About 0.001 both as float32 and as a pair of bfloat16, so that the sums stay finite.
Vec SmallNumbers() {
  Vec v = Set(AsFloat(0x3a803a80));
  Opaque(v);
  return v;
}

// operations: those of one multiply-add in one lane.
template <typename Operand, uint64_t operations>
uint64_t ProbeMultiply(size_t steps) {
  const Vec w = SmallNumbers(), x = SmallNumbers();
  Vec sums[kChains];
#pragma GCC unroll 16
  for (size_t i = 0; i < kChains; ++i) {
    sums[i] = Set(0);
    Opaque(sums[i]);  // or the compiler sees equal sums and keeps one
  }
  for (size_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (size_t i = 0; i < kChains; ++i) sums[i] = Operand::MultiplyAdd(w, x, sums[i]);
  }
  Vec total = sums[0];
#pragma GCC unroll 16
  for (size_t i = 1; i < kChains; ++i) total = total + sums[i];
  Opaque(total);
  return steps * kChains * kLanes * operations;
}

uint64_t ProbeExp(size_t steps) {
  constexpr size_t kAtOnce = 4;
  Vec x = Set(-3.5f);
  for (size_t step = 0; step < steps; ++step) {
#pragma GCC unroll 4
    for (size_t i = 0; i < kAtOnce; ++i) {
      Opaque(x);  // or the compiler computes one result for all
      Vec result = Exp(x);
      Opaque(result);
    }
  }
  return steps * kAtOnce * kLanes;
}

template <size_t ahead>
void ProbeRead(const std::byte* src, size_t bytes) {
  for (const std::byte* end = src + bytes; src < end; src += kProbeChunk) {
#pragma GCC unroll 32
    for (size_t i = 0; i < kProbeChunk; i += sizeof(Vec)) {
      if (ahead > 0 && i % 64 == 0) __builtin_prefetch(src + ahead + i);
      Vec v = Load(reinterpret_cast<const float*>(src + i));
      Opaque(v);
    }
  }
}

constexpr Probes MakeProbes(Isa isa, uint64_t (*multiply_bf16)(size_t)) {
  return {
      .isa = isa,
      .multiply_f32 = ProbeMultiply<OperandF32, 2>,
      .multiply_bf16 = multiply_bf16,
      .exp_f32 = ProbeExp,
      .read = ProbeRead<0>,
      .stream = ProbeRead<kProbeAhead>,
  };
}

}  // namespace
}  // namespace pinion::kernels::impl
