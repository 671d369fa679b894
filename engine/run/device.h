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

// What makes an executor: the part of a start that depends on what computes the model. StartModel
// calls the functions in this order, each once, and needs the object no longer when it returns. If
// several processes compute a model, each has a device, and an error of any is an error of all.
class Device {
 public:
  virtual ~Device() = default;

  // Before the model is opened: what this process computes with. Fills info.plan (as many ranks as
  // its options ask for; everything else of a rank may be empty), info.threads and info.isa, which
  // must be the same in all processes.
  virtual Status Prepare(StartedModel& model, Stages& stages) = 0;

  // The model is open, and `options` says in which types and steps it is computed. May change how.
  virtual Status ChooseKernels(StartedModel& /*model*/, DecoderOptions& /*options*/,
                               Stages& /*stages*/) {
    return {};
  }

  // What each rank of this process needs; an error if it has not got it (CountNeeds tells what the
  // CPU's do).
  virtual Result<std::vector<RankNeeds>> CheckMemory(StartedModel& model,
                                                     const DecoderOptions& options,
                                                     Stages& stages) = 0;

  // Loads this process's part of the model.
  virtual Result<std::unique_ptr<Executor>> Load(StartedModel& model, const DecoderOptions& options,
                                                 std::shared_ptr<const TensorSource> weights) = 0;

  // Bytes free for keys, values and states, now that the weights are loaded: half of them are
  // taken, unless --kv-cache-space says how much (SizeKv).
  virtual uint64_t FreeForCache(const StartedModel& model) = 0;
};

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
