#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "engine/exec/executor.h"
#include "engine/host/team.h"
#include "engine/sample/sampler.h"
#include "kernels/kernels.h"

namespace pinion {

// The sequences whose tokens are being chosen. Between steps only Update changes which there are.
class Samplers {
 public:
  void Update(const StepInput& input);
  Sampler& Of(uint64_t sequence) { return samplers_.at(sequence); }
  size_t count() const { return samplers_.size(); }

 private:
  std::unordered_map<uint64_t, Sampler> samplers_;
};

// What becomes of the wanted rows of one step, whose logits come in chunks to all threads of a
// rank: they share the choice of tokens; thread 0 alone hands on rows, so that these come in order.
class RowResults {
 public:
  // width: of a row. Everything outlives this.
  RowResults(const kernels::Table& table, size_t width, const StepInput& input, Samplers& samplers,
             StepCaller& caller);

  // Rows wanted[first] to wanted[first + count - 1]; as LogitsSink.
  void Take(const Worker& worker, size_t first, size_t count, float* logits, size_t stride);
  StepOutput TakeOutput() { return std::move(output_); }

 private:
  SampledToken Choose(size_t wanted, float* logits);

  const kernels::Table& table_;
  const size_t width_;
  const StepInput& input_;
  Samplers& samplers_;
  StepCaller& caller_;
  StepOutput output_;
};

}  // namespace pinion
