#pragma once

#include <memory>

#include "engine/base/result.h"
#include "engine/checkpoint/tensors.h"
#include "engine/comm/communicator.h"
#include "engine/decoder/decoder.h"
#include "engine/host/binding.h"
#include "engine/host/team.h"
#include "engine/spec/spec.h"
#include "engine/weights/stages.h"

namespace pinion {

// The ranks that a decoder of these options is loaded on. If one of its processes cannot start its
// own, all fail: Decoder::Load is collective.
Result<std::unique_ptr<Ranks>> StartRanks(const Plan& plan, const DecoderOptions& options);

// A decoder of several stages, each of which may compute another step. Forward is Begin and Finish.
// All other calls of a decoder come while no step is in flight; figures are those of the last one
// that is finished.
class StagedDecoder : public Decoder {
 public:
  // `batch` stays as it is until Finish, which is for the oldest step in flight: the sink is called
  // from within it alone. At most as many steps as the model has stages are in flight.
  virtual void Begin(const StepBatch& batch) = 0;
  // A batch's `written` is called from there, too.
  virtual void Finish(const LogitsSink& sink) = 0;
};

// The stages of this process, each on ranks of its own, and the whole model that they form.
struct Pipeline {
  std::unique_ptr<Ranks> ranks;  // all of them; Run is not for them
  std::unique_ptr<StagedDecoder> decoder;
};

// Starts the ranks of `plan` and loads the stages that this process has, all at once. Every stage
// computes step after step, so that each can be at another one; a step that is cut into parts
// (CutStep) is in several stages at a time by itself. With one GEMM kernel its results are the same
// to the bit for any number of parts. They may be rounded otherwise than those of the whole model:
// attention takes at most kCutRows rows of a sequence at a time, and several threads divide long
// contexts more finely.
//   options.communicator   the processes that have the same stages; null: this one alone
//   world                  all processes; null: this one alone. Several threads send and receive
Result<Pipeline> StartPipeline(const DecoderSpec& spec, std::shared_ptr<const TensorSource> source,
                               const Plan& plan, const DecoderOptions& options,
                               const Partition& partition, Communicator* world);

}  // namespace pinion
