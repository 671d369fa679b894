#include "engine/decoder/pipeline.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <span>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/decoder/micro_batches.h"
#include "engine/decoder/stage_thread.h"
#include "engine/spec/stage.h"

namespace pinion {
namespace {

// One stage on ranks of its own. Everything but `done` is set at start.
struct Stage {
  int number = 0;
  std::unique_ptr<Ranks> ranks;
  std::unique_ptr<Decoder> decoder;
  const float* taken = nullptr;    // what the stage before hands over, in this process
  std::vector<float> received;     // the same, of another process
  std::vector<float> given;        // for the next stage, [max_rows][HandoverFloats]
  std::optional<size_t> from, to;  // the processes of the stages beside it, if they are others
  Stage* before = nullptr;         // in this process
  size_t done = 0;                 // parts of the step
  StageThread thread;              // ends before what it uses

  // Ranks must end on the thread that started them.
  ~Stage() {
    thread.Do([this] {
      decoder.reset();
      ranks.reset();
    });
  }
};

using Stages = std::vector<std::unique_ptr<Stage>>;  // last to first

class StageRanks final : public Ranks {
 public:
  explicit StageRanks(std::shared_ptr<Stages> stages) : stages_(std::move(stages)) {}

  int count() const override {
    int count = 0;
    for (const auto& stage : *stages_) count += stage->ranks->count();
    return count;
  }
  int threads(int rank) const override { return Of(rank).ranks->threads(Within(rank)); }
  double waited_s(int rank) const override { return Of(rank).ranks->waited_s(Within(rank)); }
  void Run(const std::function<void(const Worker&)>&) override {
    CHECK(false) << "the stages of a pipeline run apart";
  }

 private:
  int Each() const { return stages_->front()->ranks->count(); }
  const Stage& Of(int rank) const { return *stages_->at(static_cast<size_t>(rank / Each())); }
  int Within(int rank) const { return rank % Each(); }

  std::shared_ptr<Stages> stages_;
};

class PipelinedDecoder final : public Decoder {
 public:
  PipelinedDecoder(const DecoderSpec& spec, std::shared_ptr<Stages> stages, Communicator* world)
      : row_floats_(HandoverFloats(spec)),
        granule_(CutGranule(spec)),
        stages_(std::move(stages)),
        world_(world) {}

  Status AllocateKv(size_t blocks, size_t max_model_len, size_t places) override {
    blocks_ = blocks;
    for (const auto& stage : *stages_) {
      Status allocated;
      stage->thread.Do(
          [&] { allocated = stage->decoder->AllocateKv(blocks, max_model_len, places); });
      PINION_TRY(std::move(allocated));
    }
    return {};
  }

  uint64_t weight_bytes() const override { return Sum(&Decoder::weight_bytes); }
  uint64_t kv_bytes() const override { return Sum(&Decoder::kv_bytes); }
  uint64_t state_bytes() const override { return Sum(&Decoder::state_bytes); }
  uint64_t expert_bytes_read() const override { return Sum(&Decoder::expert_bytes_read); }
  uint64_t shared_kv_bytes() const override { return Sum(&Decoder::shared_kv_bytes); }

  // A piece is a span of all parts.
  KvPieces kv_pieces() const override {
    KvPieces pieces;
    for (const auto& stage : *stages_)
      pieces.span_blocks = std::max(pieces.span_blocks, stage->decoder->kv_pieces().span_blocks);
    pieces.count = (blocks_ + pieces.span_blocks - 1) / pieces.span_blocks;
    return pieces;
  }
  void TouchKv(size_t first, size_t last) override {
    const size_t span = kv_pieces().span_blocks;
    OnAll([&](Stage& stage) {
      const KvPieces own = stage.decoder->kv_pieces();
      const auto piece = [&](size_t block) {
        return std::min(own.count, (block + own.span_blocks - 1) / own.span_blocks * own.parts);
      };
      stage.decoder->TouchKv(piece(first * span), piece(last * span));
    });
  }

  std::vector<RankPlacement> placements() const override {
    std::vector<RankPlacement> all;
    for (const auto& stage : *stages_)
      for (RankPlacement& of : stage->decoder->placements()) all.push_back(std::move(of));
    return all;
  }

  size_t block_image_bytes() const override { return Sum(&Decoder::block_image_bytes); }
  size_t state_image_bytes() const override { return Sum(&Decoder::state_image_bytes); }
  void ReadBlocks(std::span<const int32_t> blocks, std::byte* images, size_t stride) override {
    OnAll([&](Stage& stage) {
      const size_t at = Before(stage, &Decoder::block_image_bytes);
      stage.decoder->ReadBlocks(blocks, images + at, stride);
    });
  }
  void WriteBlocks(std::span<const int32_t> blocks, const std::byte* images,
                   size_t stride) override {
    OnAll([&](Stage& stage) {
      const size_t at = Before(stage, &Decoder::block_image_bytes);
      stage.decoder->WriteBlocks(blocks, images + at, stride);
    });
  }
  void ReadState(int32_t place, std::byte* image) override {
    OnAll([&](Stage& stage) {
      stage.decoder->ReadState(place, image + Before(stage, &Decoder::state_image_bytes));
    });
  }
  void WriteState(int32_t place, const std::byte* image) override {
    OnAll([&](Stage& stage) {
      stage.decoder->WriteState(place, image + Before(stage, &Decoder::state_image_bytes));
    });
  }

  void Observe(ActivationObserver* observer) override {
    CHECK(observer == nullptr) << "an observer would see one stage alone";
  }

  void Forward(const StepBatch& batch, const LogitsSink& sink) override {
    const std::vector<StepBatch> parts = CutStep(batch, batch.parts, granule_);
    for (const auto& stage : *stages_) stage->done = 0;
    OnAll([&](Stage& stage) {
      stage.decoder->PlanStage(batch, parts);
      for (const StepBatch& part : parts) ComputePart(stage, part, sink);
    });
  }
  void PlanStage(const StepBatch&, std::span<const StepBatch>) override { NoStage(); }
  void ForwardStage(const StepBatch&, const Handover&, const LogitsSink&) override { NoStage(); }

 private:
  template <typename Figure>
  Figure Sum(Figure (Decoder::*figure)() const) const {
    Figure sum = 0;
    for (const auto& stage : *stages_) sum += ((*stage->decoder).*figure)();
    return sum;
  }

  // The sum of a figure over the stages that come before this one in an image.
  size_t Before(const Stage& stage, size_t (Decoder::*figure)() const) const {
    size_t sum = 0;
    for (const auto& other : *stages_) {
      if (other.get() == &stage) break;
      sum += ((*other->decoder).*figure)();
    }
    return sum;
  }

  template <typename Job>
  void OnAll(const Job& job) {
    for (const auto& stage : *stages_) stage->thread.Post([&job, &stage] { job(*stage); });
    for (const auto& stage : *stages_) stage->thread.Wait();
  }

  static void NoStage() { CHECK(false) << "a pipeline computes whole models"; }

  void ComputePart(Stage& stage, const StepBatch& part, const LogitsSink& sink) {
    const size_t at = part.place.row * row_floats_;
    const size_t bytes = part.tokens.size() * row_floats_ * sizeof(float);
    Handover handover;
    if (const float* taken = Take(stage, part.place.part, at, bytes)) handover.taken = taken + at;
    if (!stage.given.empty()) handover.given = stage.given.data() + at;
    stage.decoder->ForwardStage(
        part, handover,
        [&](const Worker& worker, size_t first, size_t count, float* logits, size_t stride) {
          sink(worker, part.place.logit + first, count, logits, stride);
        });
    if (stage.to) world_->Send(*stage.to, stage.number, handover.given, bytes);
    Finish(stage);
  }

  // Waits for the hidden states of part i; null if the stage has the embeddings.
  const float* Take(Stage& stage, size_t i, size_t at, size_t bytes) {
    if (stage.from) {
      const TraceSpan span("receive");
      world_->Receive(*stage.from, stage.number - 1, stage.received.data() + at, bytes);
      return stage.received.data();
    }
    if (!stage.before) return nullptr;
    const TraceSpan span("wait for stage");
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stage.before->done > i; });
    return stage.before->given.data();
  }

  void Finish(Stage& stage) {
    {
      const std::lock_guard lock(mutex_);
      ++stage.done;
    }
    changed_.notify_all();
  }

  const size_t row_floats_;
  const size_t granule_;  // where sequences may be cut
  std::shared_ptr<Stages> stages_;
  Communicator* world_;
  std::mutex mutex_;  // guards the stages' `done`
  std::condition_variable changed_;
  size_t blocks_ = 0;
};

// The ranks [first, first + count) of a plan as a plan of their own.
Plan PlanOfRanks(const Plan& whole, size_t first, size_t count) {
  Plan plan;
  for (size_t rank = 0; rank < count; ++rank) {
    plan.ranks.push_back(whole.ranks[first + rank]);
    plan.ranks.back().rank = static_cast<int>(rank);
  }
  return plan;
}

Status LoadStage(const DecoderSpec& spec, std::shared_ptr<const TensorSource> source,
                 const Plan& plan, const DecoderOptions& options, Stage& stage) {
  PINION_ASSIGN(stage.ranks, StartRanks(plan, options));
  PINION_ASSIGN(stage.decoder, Decoder::Load(spec, std::move(source), *stage.ranks, options));
  return {};
}

// Tells each stage which one hands it hidden states, and which one takes its own.
void Connect(const StagePlaces& places, size_t process, size_t floats, int last_stage,
             Stages& stages) {
  for (size_t i = 0; i < stages.size(); ++i) {
    Stage& stage = *stages[i];
    if (stage.number < last_stage) {
      stage.given.resize(floats);
      if (i == 0) stage.to = places.ProcessOf(stage.number + 1, process);
    }
    if (stage.number == 0) continue;
    if (i + 1 < stages.size()) {
      stage.before = stages[i + 1].get();
      continue;
    }
    stage.from = places.ProcessOf(stage.number - 1, process);
    stage.received.resize(floats);
  }
}

}  // namespace

Result<std::unique_ptr<Ranks>> StartRanks(const Plan& plan, const DecoderOptions& options) {
  auto ranks = Ranks::Start(plan);
  PINION_TRY(Together(options.communicator, ranks ? Status{} : Unexpected(ranks.error())));
  return ranks;
}

Result<StagePlaces> StagePlaces::Of(const Partition& partition, size_t processes) {
  const auto stages = static_cast<size_t>(partition.stages);
  const auto tensor = static_cast<size_t>(partition.tensor);
  StagePlaces places;
  places.partition_ = partition;
  places.processes_ = processes;
  const bool whole_stages = stages % processes == 0;
  const bool parts_of_stages = processes % stages == 0 && tensor % (processes / stages) == 0;
  if (!whole_stages && !parts_of_stages)
    return Fail(ErrorCode::kUsage,
                StrCat("-tp ", tensor, stages > 1 ? StrCat(" -pp ", stages) : "",
                       " cannot be divided by the ", processes,
                       " processes that were started together; use -tp ", processes,
                       stages > 1 ? StrCat(" or -pp ", processes) : "",
                       " or a multiple of it, or start one process alone"));
  places.per_stage_ = whole_stages ? 1 : processes / stages;
  places.stages_ = whole_stages ? static_cast<int>(stages / processes) : 1;
  places.tensor_ = static_cast<int>(tensor / places.per_stage_);
  places.ranks_ = static_cast<size_t>(places.stages_) * static_cast<size_t>(places.tensor_);
  return places;
}

std::vector<int> StagePlaces::StagesIn(size_t process) const {
  const int last = partition_.stages - 1 - static_cast<int>(process / per_stage_) * stages_;
  std::vector<int> stages;
  for (int i = 0; i < stages_; ++i) stages.push_back(last - i);
  return stages;
}

size_t StagePlaces::ProcessOf(int other, size_t process) const {
  const auto behind = static_cast<size_t>((partition_.stages - 1 - other) / stages_);
  return behind * per_stage_ + process % per_stage_;
}

Result<Pipeline> StartPipeline(const DecoderSpec& spec, std::shared_ptr<const TensorSource> source,
                               const Plan& plan, const DecoderOptions& options,
                               const Partition& partition, Communicator* world) {
  const size_t process = world ? world->process() : 0;
  PINION_ASSIGN(const StagePlaces places,
                StagePlaces::Of(partition, world ? world->processes() : 1));
  const std::vector<DecoderSpec> specs = StageSpecs(spec, options.formats, partition.stages);
  auto stages = std::make_shared<Stages>();
  const auto each = static_cast<size_t>(places.tensor());
  std::vector<Status> loaded(places.StagesIn(process).size());
  for (const int number : places.StagesIn(process)) {
    stages->push_back(std::make_unique<Stage>());
    stages->back()->number = number;
  }
  const size_t floats = options.max_rows * HandoverFloats(spec);
  Connect(places, process, floats, partition.stages - 1, *stages);
  for (size_t i = 0; i < stages->size(); ++i) {
    Stage& stage = *(*stages)[i];
    DecoderOptions of_stage = options;
    for (size_t rank = 0; rank < each && !options.memory.empty(); ++rank)
      of_stage.memory.at(rank) = options.memory.at(i * each + rank);
    of_stage.shared.first = i * each;
    stage.thread.Post([&, i, of_stage = std::move(of_stage)] {
      loaded[i] = LoadStage(specs[static_cast<size_t>(stage.number)], source,
                            PlanOfRanks(plan, i * each, each), of_stage, stage);
    });
  }
  for (const auto& stage : *stages) stage->thread.Wait();
  for (Status& status : loaded) PINION_TRY(std::move(status));
  Pipeline pipeline;
  pipeline.ranks = std::make_unique<StageRanks>(stages);
  pipeline.decoder = std::make_unique<PipelinedDecoder>(spec, stages, world);
  return pipeline;
}

}  // namespace pinion
