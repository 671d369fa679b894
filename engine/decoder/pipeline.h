#pragma once

#include <memory>
#include <optional>
#include <vector>

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

// Where the stages of a pipeline are computed. Process p of several has the ranks
// [p * n, (p + 1) * n) of Partition's numbering, n being as many as each process has: whole stages,
// or a part of one.
class StagePlaces {
 public:
  // kUsage unless the processes share the ranks so.
  static Result<StagePlaces> Of(const Partition& partition, size_t processes);

  size_t ranks() const { return ranks_; }          // of a process
  int tensor() const { return tensor_; }           // ranks of a stage in a process
  size_t per_stage() const { return per_stage_; }  // processes of a stage
  // The stages of a process, last to first, as their ranks are numbered.
  std::vector<int> StagesIn(size_t process) const;
  // The process that hands hidden states to `process`, which has `stage`, or takes them from it:
  // the one that has stage `other`, and the same part of it.
  size_t ProcessOf(int other, size_t process) const;

 private:
  Partition partition_;
  size_t processes_ = 1, ranks_ = 1, per_stage_ = 1;
  int tensor_ = 1, stages_ = 1;  // of a process
};

// The stages of this process, each on ranks of its own, and what makes them a whole model.
struct Pipeline {
  std::unique_ptr<Ranks> ranks;  // all of them; Run is not for them
  std::unique_ptr<Decoder> decoder;
};

// Starts the ranks of `plan` and loads the stages that this process has, all at once. A step is cut
// into parts (CutStep) that the stages compute one after the other, so that several stages compute
// at a time. With one GEMM kernel its results are the same to the bit for any number of parts, and
// with one thread a rank, those of the whole model; several threads divide long contexts more
// finely than without stages.
//   options.communicator   the processes that have the same stages; null: this one alone
//   world                  all processes; null: this one alone. Several threads send and receive
Result<Pipeline> StartPipeline(const DecoderSpec& spec, std::shared_ptr<const TensorSource> source,
                               const Plan& plan, const DecoderOptions& options,
                               const Partition& partition, Communicator* world);

}  // namespace pinion
