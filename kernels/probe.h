#pragma once

// Loops that reach a CPU's limits, to compare kernels with: arithmetic on registers alone, and
// reads that do nothing else. They touch only the memory passed in, start no thread and report no
// error. Callers time them; each takes some microseconds per thousand steps.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/isa.h"

namespace pinion::kernels {

// The loops of one ISA path, with that path's instructions.
struct Probes {
  Isa isa;

  // `steps` rounds of independent multiply-adds; returns how many floating-point operations that
  // was (a multiply-add counts as two). Vectors of float32:
  uint64_t (*multiply_f32)(size_t steps);
  // Products of bfloat16 added up in float32, by the instruction made for it (VDPBF16PS,
  // TDPBF16PS); nullptr if there is none: bfloat16 is then widened, and float32's rate bounds
  // it.
  uint64_t (*multiply_bf16)(size_t steps);

  // e^x as attention computes it; returns how many were computed.
  uint64_t (*exp_f32)(size_t steps);

  // Reads [src, src + bytes) once, in order; src 64-byte aligned, bytes a multiple of kProbeChunk.
  void (*read)(const std::byte* src, size_t bytes);    // for caches
  void (*stream)(const std::byte* src, size_t bytes);  // for memory: prefetches kProbeAhead ahead
};

inline constexpr size_t kProbeChunk = 1024;
// Covers the latency of memory at a core's rate (175 ns x 39 GB/s = 6.8 KB), rounded up.
inline constexpr size_t kProbeAhead = 8192;

// The loops of one usable ISA; asking for one that is not in UsableIsas() aborts.
const Probes& ProbesFor(Isa isa);

// Multiply-adds of types and widths that the tables do not use. `run` returns how many operations
// its steps were, as Probes' functions do; it is null if the CPU lacks the instruction or the
// operating system does not permit it.
struct InstructionProbe {
  const char *type, *name;  // "int8", "VPDPBUSD zmm (AVX512-VNNI)"
  uint64_t (*run)(size_t steps);
};
const std::vector<InstructionProbe>& InstructionProbes();

// Products on matrix tiles that load their operands, as GEMM does, from [a, a + a_bytes) and [b, b
// + b_bytes) again and again; both are 64-byte aligned and a multiple of kTileProbeUnit bytes.
// Operations as in InstructionProbe.
struct TileProbe {
  const char *type, *name;  // "int8", "TDPBSSD"
  uint64_t (*run)(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes,
                  size_t steps);
};
inline constexpr size_t kTileProbeUnit = 2048;
// The probes that this process can run.
const std::vector<TileProbe>& TileProbes();

// The fastest int8 multiply-adds that kernels of an ISA path may use. Operations as in
// InstructionProbe; null if the path has no such instruction (scalar).
uint64_t (*Int8Probe(Isa isa))(size_t steps);

// Follows a chain of `loads` pointers from `start` and returns its end. Each load waits for the one
// before, so the time per load is the latency of the cache or memory that holds the chain.
const void* ProbeChain(const void* start, size_t loads);

}  // namespace pinion::kernels
