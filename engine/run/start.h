#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/result.h"
#include "engine/checkpoint/model.h"
#include "engine/comm/traffic.h"
#include "engine/decoder/decoder.h"
#include "engine/exec/cpu/cpu_executor.h"
#include "engine/exec/executor.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "engine/host/memory_policy.h"
#include "engine/run/capacity.h"
#include "engine/run/engine.h"
#include "engine/run/options.h"
#include "engine/run/pooler.h"
#include "engine/run/step_clock.h"
#include "engine/run/step_cut.h"
#include "engine/weights/format_plan.h"

namespace pinion {

// The result of the start stages: everything an engine loop needs.
struct StartedModel {
  EngineOptions options;
  ModelFiles files;
  FormatPlan formats;
  kernels::Isa isa = kernels::Isa::kScalar;
  std::unique_ptr<CountingCommunicator> counted;  // null: this process has all ranks
  std::unique_ptr<Communicator> part;             // of those that share a stage of a pipeline
  std::unique_ptr<Executor> executor;
  CpuExecutor* teams = nullptr;    // this process's part of it, if the CPU computes
  std::unique_ptr<Pooler> pooler;  // null: the model generates
  Communicator* world = nullptr;   // `counted`
  Communicator* team = nullptr;    // the processes with the same layers; null: this one alone
  std::unique_ptr<MeasuredStepTimes> step_times;  // null if steps have no bound
  StepCut cut;                                    // of the leader alone
  const Clock* clock = &kMachineClock;            // of steps; a test's may be moved by them
  EngineInfo info;
  std::vector<MemoryPolicy> memory;  // those in force, of each rank of info.plan; none: local
  std::string memory_refusal;        // why --memory-policy is not; else empty
  bool mapped_weights = false;       // another engine of the server has packed them
  std::optional<RankShares> shares;  // of the ranks of `team`; unset: all have as much
  std::string weights_hash;  // of the weights, for engines that share work; empty: not needed

  bool leads() const { return !world || world->process() == 0; }
  size_t processes() const { return world ? world->processes() : 1; }
  // Keys and values of other engines (--role) are written between steps.
  size_t steps_in_flight() const {
    return options.prefill.role == PrefillOptions::Role::kBoth ? executor->steps_in_flight() : 1;
  }
};

// Several processes that were launched together (engine/comm/world.h) compute the model together:
// this one leads if it is process 0 (the others are in FollowLeader), and each has an equal part of
// the ranks. Their hosts must agree on the computation. An error of any process is an error of all.
//
// Runs the stages in order, each timed and logged: budget and plan, capacity check, load and pack,
// KV sizing, warm-up (one step of prefill and decode on every rank), times of the first steps.
// Device has the parts that depend on the device.
Result<StartedModel> StartModel(const EngineOptions& options);
// The same with other rows for --device than Devices().
struct DeviceRow;
Result<StartedModel> StartModel(const EngineOptions& options, std::span<const DeviceRow> devices);

// The loop over a started model, whatever executes it. cpus: those that this process had before its
// threads were pinned; none if they are not. Errors: its --role.
Result<std::unique_ptr<Engine>> MakeEngine(StartedModel model, std::vector<int> cpus);

// "auto" -> the checkpoint's type; kUsage for a type that Pinion does not compute in.
Result<kernels::Dtype> ResolveDtype(const EngineOptions& options, const DecoderSpec& spec);

// A model's spec, and how its matrices lie in memory.
struct PlannedModel {
  DecoderSpec spec;
  FormatPlan formats;
};

// The model under these options. Opens the files, but reads no weights.
Result<PlannedModel> PlanModel(const EngineOptions& options);

// The decoder that StartModel makes under these options of a model with these formats, except for
// what depends on the machine (the ISA path).
Result<DecoderOptions> DecoderOptionsFor(const EngineOptions& options, FormatPlan formats);

// The process memory that each rank will need under these options. `model` as from
// PlanModel(options).
Result<std::vector<RankNeeds>> NeedsFor(const EngineOptions& options, const PlannedModel& model);

// The plan that StartModel will use for these options on this machine. Starts nothing.
Result<Plan> PlanFor(const EngineOptions& options, const Machine& machine, const Budget& budget);

}  // namespace pinion
