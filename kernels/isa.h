#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace pinion::kernels {

// Instruction-set paths, weakest first. The order is partial in general; for these five it is
// total. kAmx multiplies bfloat16 on tiles and does everything else as kAvx512Bf16.
enum class Isa { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAmx };
inline constexpr int kIsaCount = 5;

const char* Name(Isa isa);  // "scalar", "avx2", "avx512", "avx512_bf16", "amx"
std::optional<Isa> ParseIsa(std::string_view name);

// The paths that this CPU has *and* the operating system lets this process use, weakest first
// (AMX: CPUID, XCR0 and arch_prctl(ARCH_REQ_XCOMP_PERM, 18) granted). kScalar is always there.
// Computed once; thread-safe.
const std::vector<Isa>& UsableIsas();

}  // namespace pinion::kernels
