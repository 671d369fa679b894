// The peak rates of instructions that no table uses yet, or uses in this width. They are written in
// assembly so that no file needs the flags for them.

#include "kernels/impl/cpuid.h"
#include "kernels/impl/probes.h"
#include "kernels/offered_isas.h"
#include "kernels/probe.h"

namespace pinion::kernels {
namespace {

// Registers 0 to 13 are sums, 14 and 15 the operands: zeros, on which no instruction is faster or
// slower. Twelve independent sums already cover a latency of 6 clocks at 2 instructions a clock.
constexpr uint64_t kSums = 14;

void Begin() { asm volatile("vzeroall"); }
void End() {
  asm volatile("vzeroupper" ::
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                     "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

// Operations of one instruction: four multiply-adds per lane of 4 bytes for int8; one in each of 32
// lanes for float16.
constexpr uint64_t kInt8Zmm = 16 * 4 * 2, kInt8Ymm = 8 * 4 * 2, kFloat16Zmm = 32 * 2;

uint64_t DotInt8Zmm(size_t steps) {
  Begin();
  for (size_t step = 0; step < steps; ++step) {
    asm volatile(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n vpdpbusd %%zmm15, %%zmm14, %%zmm\\n\n .endr" ::);
  }
  End();
  return steps * kSums * kInt8Zmm;
}

uint64_t DotInt8Ymm(size_t steps) {
  Begin();
  for (size_t step = 0; step < steps; ++step) {
    asm volatile(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n"
        "%{evex%} vpdpbusd %%ymm15, %%ymm14, %%ymm\\n\n .endr" ::);
  }
  End();
  return steps * kSums * kInt8Ymm;
}

uint64_t DotInt8YmmVex(size_t steps) {
  Begin();
  for (size_t step = 0; step < steps; ++step) {
    asm volatile(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n"
        "%{vex%} vpdpbusd %%ymm15, %%ymm14, %%ymm\\n\n .endr" ::);
  }
  End();
  return steps * kSums * kInt8Ymm;
}

// int8 on AVX2: pairs of products become 16-bit sums, pairs of these 32-bit sums, which are added.
uint64_t PairsInt8Ymm(size_t steps) {
  constexpr uint64_t kAtOnce = 7;  // sums in registers 0 to 6, their next addends in 7 to 13
  Begin();
  for (size_t step = 0; step < steps; ++step) {
    asm volatile(
        ".irp n,7,8,9,10,11,12,13\n vpmaddubsw %%ymm15, %%ymm14, %%ymm\\n\n .endr\n"
        ".irp n,7,8,9,10,11,12,13\n vpmaddwd %%ymm15, %%ymm\\n, %%ymm\\n\n .endr\n"
        "vpaddd %%ymm7, %%ymm0, %%ymm0\n vpaddd %%ymm8, %%ymm1, %%ymm1\n"
        "vpaddd %%ymm9, %%ymm2, %%ymm2\n vpaddd %%ymm10, %%ymm3, %%ymm3\n"
        "vpaddd %%ymm11, %%ymm4, %%ymm4\n vpaddd %%ymm12, %%ymm5, %%ymm5\n"
        "vpaddd %%ymm13, %%ymm6, %%ymm6\n" ::);
  }
  End();
  return steps * kAtOnce * kInt8Ymm;
}

// The same with vectors of 512 bits (AVX512-BW).
uint64_t PairsInt8Zmm(size_t steps) {
  constexpr uint64_t kAtOnce = 7;  // sums in registers 0 to 6, their next addends in 7 to 13
  Begin();
  for (size_t step = 0; step < steps; ++step) {
    asm volatile(
        ".irp n,7,8,9,10,11,12,13\n vpmaddubsw %%zmm15, %%zmm14, %%zmm\\n\n .endr\n"
        ".irp n,7,8,9,10,11,12,13\n vpmaddwd %%zmm15, %%zmm\\n, %%zmm\\n\n .endr\n"
        "vpaddd %%zmm7, %%zmm0, %%zmm0\n vpaddd %%zmm8, %%zmm1, %%zmm1\n"
        "vpaddd %%zmm9, %%zmm2, %%zmm2\n vpaddd %%zmm10, %%zmm3, %%zmm3\n"
        "vpaddd %%zmm11, %%zmm4, %%zmm4\n vpaddd %%zmm12, %%zmm5, %%zmm5\n"
        "vpaddd %%zmm13, %%zmm6, %%zmm6\n" ::);
  }
  End();
  return steps * kAtOnce * kInt8Zmm;
}

uint64_t MultiplyFloat16Zmm(size_t steps) {
  Begin();
  for (size_t step = 0; step < steps; ++step) {
    asm volatile(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n vfmadd231ph %%zmm15, %%zmm14, %%zmm\\n\n"
        " .endr" ::);
  }
  End();
  return steps * kSums * kFloat16Zmm;
}

bool Has(Isa isa) {
  for (Isa offered : OfferedIsas().isas) {
    if (offered == isa) return true;
  }
  return false;
}

}  // namespace

const std::vector<InstructionProbe>& InstructionProbes() {
  static const std::vector<InstructionProbe> probes = [] {
    // Bit numbers: Intel SDM volume 2, CPUID leaf 7.
    const impl::CpuidRegisters leaf = impl::Cpuid(7, 0), more = impl::Cpuid(7, 1);
    const bool avx2 = Has(Isa::kAvx2), avx512 = Has(Isa::kAvx512), amx = Has(Isa::kAmx);
    const bool vnni512 = avx512 && (leaf.ecx >> 11 & 1), vnni = avx2 && (more.eax >> 4 & 1);
    return std::vector<InstructionProbe>{
        {"int8", "VPMADDUBSW ymm (AVX2)", avx2 ? PairsInt8Ymm : nullptr},
        {"int8", "VPDPBUSD ymm (AVX-VNNI)", vnni ? DotInt8YmmVex : nullptr},
        {"int8", "VPDPBUSD ymm (AVX512-VNNI)", vnni512 ? DotInt8Ymm : nullptr},
        {"int8", "VPDPBUSD zmm (AVX512-VNNI)", vnni512 ? DotInt8Zmm : nullptr},
        {"int8", "TDPBSSD (AMX-INT8)", amx && (leaf.edx >> 25 & 1) ? impl::ProbeAmxS8 : nullptr},
        {"float16", "VFMADDPH zmm (AVX512-FP16)",
         avx512 && (leaf.edx >> 23 & 1) ? MultiplyFloat16Zmm : nullptr},
    };
  }();
  return probes;
}

const std::vector<TileProbe>& TileProbes() {
  static const std::vector<TileProbe> probes = [] {
    std::vector<TileProbe> all;
    if (!Has(Isa::kAmx)) return all;
    all.push_back({"bfloat16", "TDPBF16PS", impl::ProbeLoadedAmxBf16});
    if (impl::Cpuid(7, 0).edx >> 25 & 1) all.push_back({"int8", "TDPBSSD", impl::ProbeLoadedAmxS8});
    return all;
  }();
  return probes;
}

uint64_t (*Int8Probe(Isa isa))(size_t steps) {
  const bool vnni = __builtin_cpu_supports("avx512vnni");
  switch (isa) {
    case Isa::kScalar:
      return nullptr;
    case Isa::kAvx2:
      return PairsInt8Ymm;
    case Isa::kAvx2Vnni:
      return DotInt8YmmVex;
    case Isa::kAvx512:
      return PairsInt8Zmm;
    case Isa::kAvx512Vnni:
      return DotInt8Zmm;
    case Isa::kAvx512Bf16:
      return vnni ? DotInt8Zmm : PairsInt8Zmm;
    case Isa::kAmx:
      return impl::Cpuid(7, 0).edx >> 25 & 1 ? impl::ProbeAmxS8 : Int8Probe(Isa::kAvx512Bf16);
  }
  __builtin_unreachable();
}

}  // namespace pinion::kernels
