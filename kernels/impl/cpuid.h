#pragma once

#include <cpuid.h>

#include <cstdint>

namespace pinion::kernels::impl {

struct CpuidRegisters {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero if this CPU has no such leaf.
inline CpuidRegisters Cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidRegisters r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

}  // namespace pinion::kernels::impl
