#include "engine/exec/samplers.h"

#include <utility>

#include "engine/base/check.h"

namespace pinion {

void Samplers::Update(const StepInput& input) {
  for (const uint64_t sequence : input.ended) samplers_.erase(sequence);
  for (const SamplingRequest& begun : input.begun) {
    Sampler sampler(begun.params, begun.seed, begun.eos_ids, begun.prompt);
    CHECK(samplers_.emplace(begun.sequence, std::move(sampler)).second) << begun.sequence;
  }
}

SampledToken Samplers::Choose(const kernels::Table& table, const StepInput& input, size_t wanted,
                              std::span<float> logits, StepCaller& caller) {
  const WantedRow& row = input.wanted[wanted];
  if (row.use == RowUse::kRating) return RateToken(table, logits, row.given, row.best);
  std::span<const uint32_t> mask;
  if (row.constrained) {
    mask = caller.Mask(wanted);
    if (mask.empty()) return {SampledToken::kNoMask};
  }
  Sampler& sampler = samplers_.at(row.sequence);
  for (const int32_t id : row.jumped) sampler.Take(id);
  return sampler.Sample(table, logits, mask);
}

}  // namespace pinion
