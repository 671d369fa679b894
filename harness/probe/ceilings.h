#pragma once

#include <cstdint>
#include <memory>

#include "engine/base/result.h"
#include "engine/host/binding.h"
#include "engine/host/machine.h"
#include "kernels/isa.h"
#include "kernels/types.h"

namespace pinion::harness {

// The limits of a step on certain threads.
struct Ceilings {
  double read_bytes_per_s = 0;  // from memory
  double flops_per_s = 0;       // of the fastest instruction for a type that an ISA path has
  double int8_ops_per_s = 0;    // the same for int8; 0 if not requested
};

// Memory that a probe of bandwidth reads again and again, so that caches hold next to nothing of it
// for the next time: sixteen times the L3 caches of the plan's CPUs, and 256 MiB at least. On a Zen
// 5 core with 32 MiB of L3, reading 256 MiB was 9 to 11 % faster than reading 2 GiB, and 512 MiB at
// most 1 %. If less than twice as much is free, it is half of the free memory, but an eighth of it
// at least: such figures are too high. The first probe touches all of it.
uint64_t StreamBytes(const Machine& machine, const Plan& plan, uint64_t free_bytes);

// A short probe to run repeatedly beside a measurement, because a machine's speed changes.
class CeilingProbe {
 public:
  // On the threads of `plan`, for weights of `dtype` on `isa`, and for integers too if some weights
  // stay in them. Reserves memory, which the first
  // Measure touches; an error if too little is free, or if the environment's PINION_CEILINGS is 0,
  // for runs, such as tests, that do not look at these figures. Thread rule: that of Ranks, beside
  // whose teams of the same plan it may live, as long as their Run is not being called.
  static Result<std::unique_ptr<CeilingProbe>> Start(const Plan& plan, kernels::Isa isa,
                                                     kernels::Dtype dtype, bool integers);
  virtual ~CeilingProbe() = default;

  virtual Ceilings Measure() = 0;             // takes 0.15 s, the first time longer
  virtual double ReadRate() = 0;              // bytes/s alone, in 25 ms; after the first Measure
  virtual uint64_t memory_bytes() const = 0;  // resident from the first Measure on
};

}  // namespace pinion::harness
