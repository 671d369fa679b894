#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/tensors.h"
#include "engine/comm/communicator.h"
#include "engine/decoder/decoder.h"
#include "engine/exec/cpu/kv_ahead.h"
#include "engine/exec/cpu/row_results.h"
#include "engine/exec/executor.h"
#include "engine/host/binding.h"
#include "engine/host/team.h"
#include "engine/weights/stages.h"

namespace pinion {

// The model, or the part of one, that the teams of this process load.
struct CpuLoad {
  const DecoderSpec& spec;
  std::shared_ptr<const TensorSource> weights;  // the decoder keeps it: it reads embeddings there
  const Plan& plan;                             // of this process's ranks
  DecoderOptions options;         // communicator: of the processes with the same layers
  Partition partition;            // of the whole model
  Communicator* world = nullptr;  // all processes; null: this one alone
};

// A model on the thread teams of this process: all of it, or the part of a process of several. The
// tokens are chosen by the threads of rank 0 of process 0, which has the model's last layers.
class CpuExecutor final : public Executor {
 public:
  // Starts the ranks, which the calling thread then leads, and packs the weights.
  static Result<std::unique_ptr<CpuExecutor>> Load(CpuLoad load);

  Status AllocateKv(const KvRoom& room) override;
  StepOutput Execute(const StepInput& input, StepCaller& caller) override;
  ExecutorMemory memory() const override;
  StepReads reads() const override;
  std::vector<double> waited_s() const override;
  std::vector<RankPlacement> placements() const override { return decoder_->placements(); }
  bool AheadOfUse(size_t reached, bool half) const override;
  void PrepareKv(size_t reached, bool half) override;

  // For work between steps: calibration sees what the decoder computes, and computes on its teams.
  Decoder& decoder() { return *decoder_; }
  Ranks& ranks() { return *ranks_; }

 private:
  CpuExecutor(const kernels::Table& table, size_t width) : table_(table), width_(width) {}

  const kernels::Table& table_;
  const size_t width_;  // of a row of results
  std::unique_ptr<Ranks> ranks_;
  std::unique_ptr<Decoder> decoder_;
  Samplers samplers_;
  StepBatch batch_;  // of the last step, for its memory
  std::optional<KvAhead> ahead_;
};

}  // namespace pinion
