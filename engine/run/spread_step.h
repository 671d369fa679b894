#pragma once

#include <cstdint>
#include <optional>

#include "engine/base/json.h"
#include "engine/comm/traffic.h"
#include "engine/run/engine.h"

namespace pinion {

// The mean step of a model that several processes compute, as its leader measures it, beside what
// the link between them should make of it. A step that takes longer than predicted waited for
// another process, or the link is slower than it was at the start.
struct SpreadStep {
  uint64_t steps = 0;
  double measured_s = 0;
  double compute_s = 0;  // of that: outside of calls to the other processes, which includes no wait
  double link_s = 0;     // delays x the time of a call + bytes / bandwidth
  double calls = 0, delays = 0, bytes = 0;  // as Traffic has them

  double predicted_s() const { return compute_s + link_s; }
};

// Of the steps so far of one kind; nothing without steps, or if no other process takes part. It
// means nothing for stages of layers, which wait for each other's work.
std::optional<SpreadStep> SpreadStepOf(const StepWork& work, const std::optional<LinkCost>& link);

// For /server_info: the link's {"call_s","bytes_per_s"}, with "prefill_step" and "decode_step" so
// far, which are null for stages of layers.
Json LinkJson(const LinkCost& link, const EngineStats& stats, const EngineOptions& options);

// {"steps","measured_s","predicted_s","compute_s","link_s","calls","delays","bytes"}, or null.
Json ToJson(const std::optional<SpreadStep>& step);

}  // namespace pinion
