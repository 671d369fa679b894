#include "engine/decoder/pipeline.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/trace.h"
#include "engine/decoder/micro_batches.h"
#include "engine/decoder/stage_places.h"
#include "engine/decoder/stage_thread.h"
#include "engine/spec/stage.h"

namespace pinion {
namespace {

// Totals of a stage so far.
struct StageFigures {
  uint64_t expert_bytes = 0, shared_kv_bytes = 0;
  std::vector<double> waited_s;  // [ranks]
};

// One stage on ranks of its own. Everything up to `before` is set at start.
struct Stage {
  int number = 0;
  std::unique_ptr<Ranks> ranks;
  std::unique_ptr<Decoder> decoder;
  // Hidden states from the stage before, if it is in another process, and for the next one, each
  // [max_rows][HandoverFloats]; as many as StagePlaces::BuffersOf says.
  std::vector<float> received;
  std::vector<std::unique_ptr<float[]>> given;
  std::optional<size_t> from, to;  // the processes of the stages beside it, if they are others
  Stage* before = nullptr;         // in this process
  size_t done = 0;                 // parts of all steps
  StageFigures figures;            // as of the last step that is finished
  StageThread thread;              // ends before the members that it uses

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
  double waited_s(int rank) const override {
    const std::vector<double>& all = Of(rank).figures.waited_s;
    return all.empty() ? 0 : all.at(static_cast<size_t>(Within(rank)));
  }
  void Run(const std::function<void(const Worker&)>&) override {
    CHECK(false) << "the stages of a pipeline run apart";
  }

 private:
  int Each() const { return stages_->front()->ranks->count(); }
  const Stage& Of(int rank) const { return *stages_->at(static_cast<size_t>(rank / Each())); }
  int Within(int rank) const { return rank % Each(); }

  std::shared_ptr<Stages> stages_;
};

// A step in flight.
struct OpenStep {
  const StepBatch& batch;
  std::vector<StepBatch> parts;
  const size_t number;        // of the step
  const size_t parts_before;  // of earlier steps
  size_t stages_left;         // that have not computed it yet
  std::vector<StageFigures> figures;
  const LogitsSink* sink = nullptr;  // from Finish on
  LayerSink pass_layer = {};         // by the last part, which ends what is written of the layer
  size_t written = 0;                // layers
};

class PipelinedDecoder final : public StagedDecoder {
 public:
  PipelinedDecoder(const DecoderSpec& spec, std::shared_ptr<Stages> stages, Communicator* world)
      : row_floats_(HandoverFloats(spec)),
        granule_(CutGranule(spec)),
        stages_(std::move(stages)),
        world_(world) {}
  // A stage may still be telling that it has done its part of the last step.
  ~PipelinedDecoder() override {
    CHECK(open_.empty()) << open_.size() << " steps are in flight";
    for (const auto& stage : *stages_) stage->thread.Wait();
  }

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
  uint64_t expert_bytes_read() const override { return SumOf(&StageFigures::expert_bytes); }
  uint64_t shared_kv_bytes() const override { return SumOf(&StageFigures::shared_kv_bytes); }

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

  size_t block_image_bytes(size_t table, size_t layers) const override {
    size_t bytes = 0;
    for (const auto& stage : *stages_) bytes += stage->decoder->block_image_bytes(table, layers);
    return bytes;
  }
  size_t state_image_bytes() const override { return Sum(&Decoder::state_image_bytes); }
  void ReadBlocks(const BlockImages& of, std::byte* images) const override {
    for (const auto& stage : *stages_) {
      const OwnPart own = OwnPartOf(*stage, of);
      if (own.of.bytes > 0) stage->decoder->ReadBlocks(own.of, images + own.at);
    }
  }
  void WriteBlocks(const BlockImages& of, const std::byte* images) override {
    OnAll([&](Stage& stage) {
      const OwnPart own = OwnPartOf(stage, of);
      if (own.of.bytes > 0) stage.decoder->WriteBlocks(own.of, images + own.at);
    });
  }
  void ReadState(int32_t place, std::byte* image) const override {
    for (const auto& stage : *stages_)
      stage->decoder->ReadState(place, image + StatesBefore(*stage));
  }
  void WriteState(int32_t place, const std::byte* image) override {
    OnAll([&](Stage& stage) { stage.decoder->WriteState(place, image + StatesBefore(stage)); });
  }

  void Observe(ActivationObserver* observer) override {
    CHECK(observer == nullptr) << "an observer would see one stage alone";
  }

  void Forward(const StepBatch& batch, const LogitsSink& sink) override {
    Begin(batch);
    Finish(sink);
  }
  void Begin(const StepBatch& batch) override {
    OpenStep& step =
        open_.emplace_back(OpenStep{batch, CutStep(batch, batch.parts, granule_), begun_++, parts_,
                                    stages_->size(), std::vector<StageFigures>(stages_->size())});
    parts_ += step.parts.size();
    step.pass_layer = [this, &step](size_t layers) { Tell([&] { step.written = layers; }); };
    if (batch.written && !step.parts.empty()) step.parts.back().written = &step.pass_layer;
    for (size_t i = 0; i < stages_->size(); ++i)
      (*stages_)[i]->thread.Post([this, &step, i] { Compute(step, i); });
  }
  void Finish(const LogitsSink& sink) override {
    CHECK(!open_.empty()) << "no step has begun";
    OpenStep& step = open_.front();
    Tell([&] { step.sink = &sink; });
    for (size_t told = 0;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return step.stages_left == 0 || step.written > told; });
      if (step.written == told) break;
      told = step.written;
      lock.unlock();  // stages go on while the caller hands the layer on
      (*step.batch.written)(told);
    }
    for (size_t i = 0; i < stages_->size(); ++i)
      (*stages_)[i]->figures = std::move(step.figures[i]);
    open_.pop_front();
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

  uint64_t SumOf(uint64_t StageFigures::*figure) const {
    uint64_t sum = 0;
    for (const auto& stage : *stages_) sum += stage->figures.*figure;
    return sum;
  }

  // The bytes of a state's image before those of this stage.
  size_t StatesBefore(const Stage& stage) const {
    size_t bytes = 0;
    for (const auto& other : *stages_)
      if (other->number < stage.number) bytes += other->decoder->state_image_bytes();
    return bytes;
  }

  // A stage's part of images, and its offset in their bytes.
  struct OwnPart {
    BlockImages of;
    size_t at;
  };
  OwnPart OwnPartOf(const Stage& stage, const BlockImages& of) const {
    size_t before = 0;
    for (const auto& other : *stages_)
      if (other->number < stage.number)
        before += other->decoder->block_image_bytes(of.table, SIZE_MAX);
    const size_t behind = before + stage.decoder->block_image_bytes(of.table, SIZE_MAX);
    const size_t from = std::max(before, of.first);
    const size_t to = std::max(from, std::min(behind, of.first + of.bytes));
    OwnPart own{of, from - of.first};
    own.of.first = from - before;
    own.of.bytes = to - from;
    return own;
  }

  template <typename Job>
  void OnAll(const Job& job) {
    CHECK(open_.empty()) << open_.size() << " steps are in flight";
    for (const auto& stage : *stages_) stage->thread.Post([&job, &stage] { job(*stage); });
    for (const auto& stage : *stages_) stage->thread.Wait();
  }

  static void NoStage() { CHECK(false) << "a pipeline computes whole models"; }

  // By the stage's thread.
  void Compute(OpenStep& step, size_t index) {
    Stage& stage = *(*stages_)[index];
    stage.decoder->PlanStage(step.batch, step.parts);
    for (const StepBatch& part : step.parts) ComputePart(stage, step, part);
    StageFigures& figures = step.figures[index];
    figures.expert_bytes = stage.decoder->expert_bytes_read();
    figures.shared_kv_bytes = stage.decoder->shared_kv_bytes();
    for (int rank = 0; rank < stage.ranks->count(); ++rank)
      figures.waited_s.push_back(stage.ranks->waited_s(rank));
    Tell([&] { --step.stages_left; });  // its lock also passes the figures on to Finish
  }

  void ComputePart(Stage& stage, OpenStep& step, const StepBatch& part) {
    const size_t at = part.place.row * row_floats_;
    const size_t bytes = part.tokens.size() * row_floats_ * sizeof(float);
    Handover handover;
    if (const float* taken = Take(stage, step, part.place.part, at, bytes))
      handover.taken = taken + at;
    if (!stage.given.empty()) handover.given = GivenOf(stage, step) + at;
    stage.decoder->ForwardStage(
        part, handover,
        [&](const Worker& worker, size_t first, size_t count, float* logits, size_t stride) {
          SinkOf(step)(worker, part.place.logit + first, count, logits, stride);
        });
    if (stage.to) world_->Send(*stage.to, stage.number, handover.given, bytes);
    Tell([&] { ++stage.done; });
  }

  // Waits for the hidden states of a part; null if the stage has the embeddings.
  const float* Take(Stage& stage, const OpenStep& step, size_t part, size_t at, size_t bytes) {
    if (stage.from) {
      const TraceSpan span("receive");
      world_->Receive(*stage.from, stage.number - 1, stage.received.data() + at, bytes);
      return stage.received.data();
    }
    if (!stage.before) return nullptr;
    const TraceSpan span("wait for stage");
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stage.before->done > step.parts_before + part; });
    return GivenOf(*stage.before, step);
  }

  static float* GivenOf(Stage& stage, const OpenStep& step) {
    return stage.given[step.number % stage.given.size()].get();
  }

  // Waits for Finish, which brings the sink: logits may be ready earlier.
  const LogitsSink& SinkOf(const OpenStep& step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return step.sink != nullptr; });
    return *step.sink;
  }

  template <typename Change>
  void Tell(const Change& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }

  const size_t row_floats_;
  const size_t granule_;  // where sequences may be cut
  std::shared_ptr<Stages> stages_;
  Communicator* world_;
  std::deque<OpenStep> open_;     // which stay where they are
  size_t begun_ = 0, parts_ = 0;  // steps, and their parts, so far
  std::mutex mutex_;              // guards the progress of stages, and sinks
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
void Connect(const StagePlaces& places, size_t process, size_t floats, Stages& stages) {
  for (size_t i = 0; i < stages.size(); ++i) {
    Stage& stage = *stages[i];
    const StagePlaces::Buffers buffers = places.BuffersOf(process, i);
    stage.received.resize(buffers.taken * floats);
    // Untouched, so that only rows which steps have take memory.
    for (size_t step = 0; step < buffers.given; ++step)
      stage.given.push_back(std::make_unique_for_overwrite<float[]>(floats));
    if (i == 0 && buffers.given > 0) stage.to = places.ProcessOf(stage.number + 1, process);
    if (i + 1 < stages.size())
      stage.before = stages[i + 1].get();
    else if (stage.number > 0)
      stage.from = places.ProcessOf(stage.number - 1, process);
  }
}

}  // namespace

Result<std::unique_ptr<Ranks>> StartRanks(const Plan& plan, const DecoderOptions& options) {
  auto ranks = Ranks::Start(plan);
  PINION_TRY(Together(options.communicator, ranks ? Status{} : Unexpected(ranks.error())));
  return ranks;
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
  Connect(places, process, floats, *stages);
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
