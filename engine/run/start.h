#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "engine/host/team.h"
#include "engine/model/decoder.h"
#include "engine/model/model.h"
#include "engine/run/engine.h"
#include "engine/run/options.h"

namespace pinion {

// What the stages of a start leave behind: everything an engine loop needs.
struct StartedModel {
  EngineOptions options;
  ModelFiles files;
  kernels::Isa isa = kernels::Isa::kScalar;
  std::unique_ptr<Ranks> ranks;
  std::unique_ptr<Decoder> decoder;
  EngineInfo info;
};

// Runs the stages in order, each timed and logged: budget and plan, capacity check, load and pack,
// KV sizing, warm-up (one step of prefill and decode on every rank).
Result<StartedModel> StartModel(const EngineOptions& options);

// "auto" -> the checkpoint's type; kUsage for a type that weights cannot have here.
Result<kernels::Dtype> ResolveDtype(const EngineOptions& options, const DecoderSpec& spec);

// The model as these options run it: with the matrices that stay in integers. Opens the files, and
// reads no weights.
Result<DecoderSpec> SpecFor(const EngineOptions& options);

// The machine's plan for these options: what StartModel will use, without starting anything.
Result<Plan> PlanFor(const EngineOptions& options, const Machine& machine, const Budget& budget);

}  // namespace pinion
