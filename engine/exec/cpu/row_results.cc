#include "engine/exec/cpu/row_results.h"

#include <span>

#include "engine/base/trace.h"

namespace pinion {

void Samplers::Update(const StepInput& input) {
  for (const uint64_t sequence : input.ended) samplers_.erase(sequence);
  for (const SamplingRequest& begun : input.begun)
    samplers_.emplace(begun.sequence,
                      Sampler(begun.params, begun.seed, begun.eos_ids, begun.prompt));
}

RowResults::RowResults(const kernels::Table& table, size_t width, const StepInput& input,
                       Samplers& samplers, StepCaller& caller)
    : table_(table), width_(width), input_(input), samplers_(samplers), caller_(caller) {
  output_.tokens.resize(input.wanted.size());
}

void RowResults::Take(const Worker& worker, size_t first, size_t count, float* logits,
                      size_t stride) {
  const TraceSpan span("sample");
  worker.ShareOneByOne(count, [&](size_t i) {
    if (input_.wanted[first + i].use != RowUse::kItself)
      output_.tokens[first + i] = Choose(first + i, logits + i * stride);
  });
  if (worker.thread != 0) return;
  for (size_t i = 0; i < count; ++i)
    if (input_.wanted[first + i].use == RowUse::kItself)
      caller_.Take(first + i, logits + i * stride, width_);
}

SampledToken RowResults::Choose(size_t wanted, float* logits) {
  const WantedRow& row = input_.wanted[wanted];
  const std::span<float> values(logits, width_);
  if (row.use == RowUse::kRating) return RateToken(table_, values, row.given, row.best);
  std::span<const uint32_t> mask;
  if (row.constrained) {
    mask = caller_.Mask(wanted);
    if (mask.empty()) return {-1};
  }
  return samplers_.Of(row.sequence).Sample(table_, values, mask);
}

}  // namespace pinion
