#include "engine/exec/cpu/row_results.h"

#include "engine/base/trace.h"

namespace pinion {

RowResults::RowResults(const kernels::Table& table, size_t width, const StepInput& input,
                       Samplers& samplers, StepCaller& caller)
    : table_(table), width_(width), input_(input), samplers_(samplers), caller_(caller) {
  output_.tokens.resize(input.wanted.size());
}

void RowResults::Take(const Worker& worker, size_t first, size_t count, float* logits,
                      size_t stride) {
  const TraceSpan span("sample");
  worker.ShareOneByOne(count, [&](size_t i) {
    const size_t wanted = first + i;
    if (input_.wanted[wanted].use != RowUse::kItself)
      output_.tokens[wanted] =
          samplers_.Choose(table_, input_, wanted, {logits + i * stride, width_}, caller_);
  });
  if (worker.thread != 0) return;
  for (size_t i = 0; i < count; ++i)
    if (input_.wanted[first + i].use == RowUse::kItself)
      caller_.Take(first + i, logits + i * stride, width_);
}

}  // namespace pinion
