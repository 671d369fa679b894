#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "engine/exec/executor.h"
#include "engine/sample/sampler.h"
#include "kernels/kernels.h"

namespace pinion {

// The samplers of the sequences whose tokens an executor chooses, for logits in the host's memory.
class Samplers {
 public:
  // Before the step's rows: forgets and adds sequences.
  void Update(const StepInput& input);

  // The token of input.wanted[wanted], whose use is kToken or kRating, or why there is none
  // (SampledToken). logits: float32
  // [vocabulary], may be overwritten. By any thread, one call at a time for each sequence.
  SampledToken Choose(const kernels::Table& table, const StepInput& input, size_t wanted,
                      std::span<float> logits, StepCaller& caller);

  size_t count() const { return samplers_.size(); }

 private:
  std::unordered_map<uint64_t, Sampler> samplers_;
};

}  // namespace pinion
