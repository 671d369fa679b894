#pragma once

#include <cstdint>

#include "engine/decoder/cost.h"
#include "engine/exec/executor.h"
#include "engine/run/engine.h"
#include "engine/sched/scheduler.h"
#include "engine/weights/format_plan.h"

namespace pinion {

// A moment, as far as the meter needs it.
struct StepMark {
  int64_t ns = 0;
  StepReads reads = {};
  Traffic exchanged = {};
};

// Rows of prompts in a step of these slices. Recomputation after a preemption does not count.
uint64_t PromptTokensOf(const std::vector<Slice>& slices);

// Adds up the time and the least work of an engine's steps. Thread rule: one thread.
class StepWorkMeter {
 public:
  StepWorkMeter(const DecoderSpec& spec, const FormatPlan& formats, const EngineInfo& info);

  // A step of these slices, `prompt_tokens` of whose rows belong to prompts: it is a prefill step
  // if there are any. Of several steps in flight, `since` is when the one before has ended.
  void Add(const std::vector<Slice>& slices, uint64_t prompt_tokens, const StepMark& since,
           const StepMark& end);

  const StepWork& prefill() const { return prefill_; }
  const StepWork& decode() const { return decode_; }

 private:
  const CostModel cost_;
  StepWork prefill_, decode_;
};

}  // namespace pinion
