#include "engine/run/step_work.h"

#include <algorithm>

namespace pinion {

StepWork StepWork::operator-(const StepWork& before) const {
  return {tokens - before.tokens,
          seconds - before.seconds,
          {least.weight_bytes - before.least.weight_bytes, least.kv_bytes - before.least.kv_bytes,
           least.flops - before.least.flops, least.int8_ops - before.least.int8_ops},
          steps - before.steps,
          exchanged - before.exchanged};
}

StepWork& StepWork::operator+=(const StepWork& more) {
  tokens += more.tokens;
  seconds += more.seconds;
  least += more.least;
  steps += more.steps;
  exchanged += more.exchanged;
  return *this;
}

uint64_t PromptTokensOf(const std::vector<Slice>& slices) {
  uint64_t tokens = 0;
  for (const Slice& slice : slices) {
    const Sequence& sequence = *slice.sequence;
    if (sequence.preemptions == 0 && slice.first < sequence.prompt_tokens)
      tokens += std::min(slice.count, sequence.prompt_tokens - slice.first);
  }
  return tokens;
}

StepWorkMeter::StepWorkMeter(const DecoderSpec& spec, const FormatPlan& formats,
                             const EngineInfo& info)
    : cost_(spec, formats, info.kv_dtype, static_cast<int>(info.plan.ranks.size())) {}

void StepWorkMeter::Add(const std::vector<Slice>& slices, uint64_t prompt_tokens,
                        const StepMark& since, const StepMark& end) {
  StepCost cost;
  uint64_t yielded = 0, jumped = 0;
  for (const Slice& slice : slices) {
    yielded += slice.samples ? 1 : 0;
    // The last step gave it these, too; with the rows of this one they count.
    if (slice.samples && slice.sequence) jumped += slice.sequence->jumped;
    cost += cost_.Rows(slice.first, slice.count, slice.samples ? 1 : 0);
  }
  cost += cost_.Weights(yielded > 0);
  cost.weight_bytes += end.reads.expert_bytes - since.reads.expert_bytes;
  // Rows counts the keys and values of each sequence as if it were alone.
  cost.kv_bytes -= std::min(cost.kv_bytes, end.reads.shared_kv_bytes - since.reads.shared_kv_bytes);
  StepWork& kind = prompt_tokens > 0 ? prefill_ : decode_;
  kind.tokens += prompt_tokens > 0 ? prompt_tokens : yielded + jumped;
  kind.seconds += static_cast<double>(end.ns - since.ns) * 1e-9;
  kind.least += cost;
  ++kind.steps;
  kind.exchanged += end.exchanged - since.exchanged;
}

}  // namespace pinion
