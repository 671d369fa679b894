#pragma once

#include <cstddef>
#include <span>

#include "engine/decoder/attention_plan.h"
#include "engine/decoder/step.h"
#include "engine/spec/attention_spec.h"

namespace pinion {

// Cuts a step's attention into the items of its parts' plans, one of each Alike's groups standing
// for all of them, as AttentionPlans says. The plans, one of each part and at least one, have their
// groups of heads and nothing else.
//
//   parts    of the step (CutStep), or the step alone
//   tables   of the layers that share the plans (KvPlace)
void MakeItems(std::span<AttentionPlan> plans, const StepBatch& step,
               std::span<const StepBatch> parts, size_t threads, size_t block_tokens,
               const Reach& reach, std::span<const size_t> tables);

}  // namespace pinion
