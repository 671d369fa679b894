#include "kernels/isa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "kernels/impl/cpuid.h"

namespace pinion::kernels {
namespace {

constexpr const char* kNames[kIsaCount] = {"scalar",      "avx2",        "avx2_vnni", "avx512",
                                           "avx512_vnni", "avx512_bf16", "amx"};

using impl::Cpuid;
using impl::CpuidRegisters;

bool AllBits(uint64_t value, uint64_t bits) { return (value & bits) == bits; }

// Which register states the operating system saves (XCR0). Written in assembly because the
// intrinsic needs -mxsave.
uint64_t ReadXcr0() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Whether palette 1 is what the kernels assume (Intel SDM volume 2, CPUID leaf 1DH): eight tiles of
// 16 rows of 64 bytes.
bool HasUsualTiles() {
  if (Cpuid(0x1d, 0).eax < 1) return false;
  const CpuidRegisters palette = Cpuid(0x1d, 1);
  constexpr uint32_t kRowBytes = 64, kTiles = 8, kRows = 16;
  return palette.ebx == (kTiles << 16 | kRowBytes) && (palette.ecx & 0xffff) == kRows;
}

// Asks Linux for the 8 KiB of tile registers, which only processes that ask may use
// (ARCH_REQ_XCOMP_PERM for XTILEDATA, state component 18). The permission covers all threads of the
// process, earlier and later ones. Returns why it was refused; empty if it was granted.
std::string RequestTiles(uint64_t xcr0) {
  constexpr uint64_t kTileState = 0x60000;
  if (!AllBits(xcr0, kTileState)) return "the operating system does not save tiles";
  if (!HasUsualTiles()) return "its tiles are not eight of 16 rows of 64 bytes";
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return {};
  return std::string("the kernel refuses tiles to this process (arch_prctl: ")
      .append(std::strerror(errno))
      .append("); AMX needs Linux 5.16 or later, and a sandbox that permits the call");
}

struct Detected {
  std::vector<Isa> usable{Isa::kScalar};
  std::string amx_refusal;
};

// Bit numbers: Intel SDM volume 2, CPUID.
Detected Detect() {
  Detected detected;
  std::vector<Isa>& usable = detected.usable;
  const CpuidRegisters basic = Cpuid(1, 0);
  constexpr uint32_t kFma = 1u << 12, kOsXsave = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;
  if (!AllBits(basic.ecx, kFma | kOsXsave | kAvx | kF16c)) return detected;
  const uint64_t xcr0 = ReadXcr0();
  const CpuidRegisters extended = Cpuid(7, 0);

  constexpr uint64_t kYmmState = 0x6, kZmmState = 0xe6;
  constexpr uint32_t kAvx2 = 1u << 5;
  if (!AllBits(xcr0, kYmmState) || !AllBits(extended.ebx, kAvx2)) return detected;
  usable.push_back(Isa::kAvx2);
  const uint32_t more = Cpuid(7, 1).eax;
  constexpr uint32_t kAvxVnni = 1u << 4;
  if (AllBits(more, kAvxVnni)) usable.push_back(Isa::kAvx2Vnni);

  constexpr uint32_t kAvx512FDqBwVl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
  if (!AllBits(xcr0, kZmmState) || !AllBits(extended.ebx, kAvx512FDqBwVl)) return detected;
  usable.push_back(Isa::kAvx512);
  constexpr uint32_t kAvx512Vnni = 1u << 11;
  if (AllBits(extended.ecx, kAvx512Vnni)) usable.push_back(Isa::kAvx512Vnni);

  // No CPU has BF16 without VNNI, but a hypervisor may hide VNNI alone.
  constexpr uint32_t kAvx512Bf16 = 1u << 5;
  if (!AllBits(more, kAvx512Bf16) || !AllBits(extended.ecx, kAvx512Vnni)) return detected;
  usable.push_back(Isa::kAvx512Bf16);

  constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if (!AllBits(extended.edx, kAmxBf16 | kAmxTile)) return detected;
  detected.amx_refusal = RequestTiles(xcr0);
  if (detected.amx_refusal.empty()) usable.push_back(Isa::kAmx);
  return detected;
}

const Detected& Here() {
  static const Detected detected = Detect();
  return detected;
}

}  // namespace

const char* Name(Isa isa) { return kNames[static_cast<int>(isa)]; }

Isa FloatPath(Isa isa) {
  return isa == Isa::kAvx2Vnni ? Isa::kAvx2 : isa == Isa::kAvx512Vnni ? Isa::kAvx512 : isa;
}

std::optional<Isa> ParseIsa(std::string_view name) {
  for (int i = 0; i < kIsaCount; ++i) {
    if (name == kNames[i]) return static_cast<Isa>(i);
  }
  return std::nullopt;
}

const std::vector<Isa>& UsableIsas() { return Here().usable; }

const std::string& AmxRefusal() { return Here().amx_refusal; }

}  // namespace pinion::kernels
