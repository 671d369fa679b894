#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pinion::kernels {

// Instruction-set paths, weakest first. A CPU may lack one path and still have the next: AVX-VNNI
// is younger than AVX512-VNNI. The VNNI paths multiply int8 with VPDPBUSD and do everything else as
// the path before them; kAmx multiplies on tiles and does everything else as kAvx512Bf16.
enum class Isa { kScalar, kAvx2, kAvx2Vnni, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmx };
inline constexpr int kIsaCount = 7;

// "scalar", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx"
const char* Name(Isa isa);
// The path whose float functions `isa` shares: itself, or the one before a VNNI path.
Isa FloatPath(Isa isa);
std::optional<Isa> ParseIsa(std::string_view name);

// The paths that this CPU has *and* the operating system lets this process use, weakest first
// (AMX: CPUID, XCR0 and arch_prctl(ARCH_REQ_XCOMP_PERM, 18) granted). kScalar is always there.
// Computed once; thread-safe.
const std::vector<Isa>& UsableIsas();

// Why kAmx is not among them although the CPU has AMX; empty if it is among them or the CPU lacks
// it.
const std::string& AmxRefusal();

}  // namespace pinion::kernels
