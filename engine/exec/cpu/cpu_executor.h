#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/result.h"
#include "engine/base/ring.h"
#include "engine/checkpoint/tensors.h"
#include "engine/comm/communicator.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/pipeline.h"
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
  // A model without stages computes a step in Finish.
  void Begin(const StepInput& input) override;
  StepOutput Finish(StepCaller& caller) override;
  size_t steps_in_flight() const override { return open_.most(); }
  ExecutorMemory memory() const override;
  StepReads reads() const override;
  std::vector<double> waited_s() const override;
  std::vector<RankPlacement> placements() const override { return decoder_->placements(); }
  bool AheadOfUse(size_t reached, bool half) const override;
  void PrepareKv(size_t reached, bool half) override;
  ImageBytes image_bytes() const override;  // nothing if it is one of several processes
  void ReadBlocks(std::span<const int32_t> blocks, const ImagePart& part,
                  std::byte* images) override;
  void WriteBlocks(std::span<const int32_t> blocks, const ImagePart& part,
                   const std::byte* images) override;
  void ReadState(int32_t place, std::byte* image) override { decoder_->ReadState(place, image); }
  void WriteState(int32_t place, const std::byte* image) override {
    decoder_->WriteState(place, image);
  }

  // For work between steps: calibration sees what the decoder computes, and computes on its teams.
  Decoder& decoder() { return *decoder_; }
  Ranks& ranks() { return *ranks_; }

 private:
  // A step in flight, as the loop and as the decoder have it.
  struct OpenStep {
    const StepInput* input = nullptr;
    StepBatch batch;
    LayerSink written = {};  // from Finish on
  };

  CpuExecutor(const kernels::Table& table, const DecoderSpec& spec, bool is_whole, size_t stages);

  // Of each table: the bytes of images that the model's first layers write.
  std::vector<size_t> BytesOfLayers(size_t layers) const;

  const kernels::Table& table_;
  const size_t width_;   // of a row of results
  const size_t tables_;  // of blocks
  const bool is_whole_;  // has the whole model
  std::unique_ptr<Ranks> ranks_;
  std::unique_ptr<Decoder> decoder_;
  StagedDecoder* staged_ = nullptr;  // the same, if it has stages
  Samplers samplers_;
  Ring<OpenStep> open_;
  std::optional<KvAhead> ahead_;
};

}  // namespace pinion
