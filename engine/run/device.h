#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/tensors.h"
#include "engine/decoder/decoder.h"
#include "engine/exec/executor.h"
#include "engine/run/capacity.h"
#include "engine/run/stages.h"
#include "engine/run/start.h"

namespace pinion {

// Makes an executor: the part of a start that depends on the device that computes the model.
// StartModel calls the functions in this order, each once, and needs the object no longer when it
// returns. If several processes compute a model, each has a device, and an error of any is an error
// of all.
class Device {
 public:
  virtual ~Device() = default;

  // Before the model is opened: how this process computes. Fills
  // - info.plan: this process's ranks, OptionsOfPart(options, processes()).ranks() of them;
  //   everything else of a rank may be empty;
  // - info.threads, and info.isa, a name of the arithmetic, the same in all processes;
  // - model.isa, if the host's kernels compute: it becomes DecoderOptions::isa, and stays kScalar
  //   otherwise. Samplers::Choose takes the kernels::TableFor any path that the host has, such as
  //   ChooseIsa's (engine/run/isa_choice.h).
  // All else may stay as it is. If several processes compute a model (model.world), all have the
  // same device, and their ranks exchange their terms: the CPU's as DecoderOptions::communicator,
  // ::wire and engine/decoder/rank_exchange.h say. A device whose ranks cannot returns an error.
  virtual Status Prepare(StartedModel& model, Stages& stages) = 0;

  // The model is open, and `options` says in which types and steps it is computed. May change what
  // has no effect on stored bytes or results beyond rounding, such as kernels; a type that the
  // device cannot compute is an error.
  virtual Status ChooseKernels(StartedModel& /*model*/, DecoderOptions& /*options*/,
                               Stages& /*stages*/) {
    return {};
  }

  // The needs of each rank of this process (never empty); an error if the device has not got it,
  // --kv-cache-space for each rank among it: nothing later compares that with free memory.
  // NeedsHere has what the CPU's ranks need.
  virtual Result<std::vector<RankNeeds>> CheckMemory(StartedModel& model,
                                                     const DecoderOptions& options,
                                                     Stages& stages) = 0;

  // Loads this process's part of the model. Sets model.options.weight_copy = {} unless engines
  // share the weights as it asks.
  virtual Result<std::unique_ptr<Executor>> Load(StartedModel& model, const DecoderOptions& options,
                                                 std::shared_ptr<const TensorSource> weights) = 0;

  // Bytes free for keys, values and states of all ranks of this process together, now that the
  // weights are loaded. Half of them are taken, or more if a sequence of --max-model-len needs it;
  // with --kv-cache-space as many as that says, whatever is free (SizeKv). If ranks have memories
  // of their own: the least of them, in blocks, times the bytes of a block of all.
  virtual uint64_t FreeForCache(const StartedModel& model) = 0;
};

// CountNeeds of the ranks of this process.
std::vector<RankNeeds> NeedsHere(const StartedModel& model, const DecoderOptions& options);

// A value of --device.
struct DeviceRow {
  const char* name;
  std::unique_ptr<Device> (*make)();
};
// The first is that of "auto".
std::span<const DeviceRow> Devices();

// kUsage for a name that is none of theirs.
Result<std::unique_ptr<Device>> MakeDevice(const std::string& name,
                                           std::span<const DeviceRow> devices);

}  // namespace pinion
