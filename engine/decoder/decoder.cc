#include "engine/decoder/decoder.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/trace.h"
#include "engine/decoder/attend.h"
#include "engine/decoder/forward.h"
#include "engine/decoder/kv_cache.h"
#include "engine/decoder/kv_images.h"
#include "engine/decoder/workspace.h"
#include "engine/weights/weights.h"

namespace pinion {
namespace {

// Of a process with so many ranks.
RankSpan SpanOf(const DecoderOptions& options, int ranks) {
  const Communicator* const communicator = options.communicator;
  if (!communicator) return {0, options.SharesOf(ranks)};
  return {static_cast<int>(communicator->process()) * ranks,
          options.SharesOf(static_cast<int>(communicator->processes()) * ranks)};
}

// Tokens of a step, counted once for each kind of attending layers, from which on several threads
// plan it. A core of an AMD Zen 5 plans 256 sequences of two kinds, on 8 groups of heads, in 23 us,
// and two cores in 11; 1024 of one kind in 46, of which 5 can be shared, or 20 of 82 if they have
// common blocks. Another phase of a large team takes 1.
constexpr size_t kTokensToPlanTogether = 512;

// An indexer's scores and choices for the longest sequences (IndexBuffers::Plan).
uint64_t IndexScoreBytes(const DecoderSpec& spec) {
  if (spec.index.heads == 0) return 0;
  return kIndexRows * (static_cast<uint64_t>(spec.max_positions) * sizeof(float) +
                       static_cast<uint64_t>(spec.index.top_k) * sizeof(int32_t));
}

class ShardedDecoder : public Decoder {
 public:
  ShardedDecoder(const DecoderSpec& spec, std::shared_ptr<const TensorSource> source, Ranks& ranks,
                 const DecoderOptions& options)
      : ranks_(ranks), source_(std::move(source)), images_(spec) {
    model_.spec = spec;
    model_.options = options;
    model_.table = options.table ? options.table : &kernels::TableFor(options.isa);
    model_.source = source_.get();
  }

  Status Load() {
    PINION_TRY(Together(model_.options.communicator, LoadOwn()));
    PINION_ASSIGN(model_.exchange, RankExchange::Create(model_.spec, model_.options, model_.ranks));
    return {};
  }

  Status AllocateKv(size_t blocks, size_t max_model_len, size_t places) override {
    model_.ropes.clear();
    for (const RopeSpec& rope : model_.spec.ropes)
      model_.ropes.push_back(
          {RopeFrequencies(rope, static_cast<int>(max_model_len)), static_cast<float>(rope.scale)});
    blocks_.reset();
    for (RankModel& rank : model_.ranks) rank.cache = {}, rank.states = {};
    for (size_t i = 0; i < model_.ranks.size(); ++i) {
      RankModel& rank = model_.ranks[i];
      const Shard& shard = rank.weights.shard;
      const MemoryPolicy memory = model_.options.memory_of(i);
      PINION_ASSIGN(rank.cache, KvCache::Allocate(model_.spec, shard, model_.options.cached(),
                                                  model_.options.block_tokens, blocks,
                                                  model_.options.formats.dtype, memory));
      PINION_ASSIGN(rank.states, StateCache::Allocate(model_.spec, shard, places, memory));
    }
    blocks_ = blocks;
    return {};
  }

  uint64_t weight_bytes() const override {
    uint64_t bytes = 0;
    for (const RankModel& rank : model_.ranks) bytes += rank.weights.storage.size_bytes();
    return bytes;
  }

  uint64_t kv_bytes() const override {
    uint64_t bytes = 0;
    for (const RankModel& rank : model_.ranks) bytes += rank.cache.size_bytes();
    return bytes;
  }

  uint64_t state_bytes() const override {
    uint64_t bytes = 0;
    for (const RankModel& rank : model_.ranks) bytes += rank.states.size_bytes();
    return bytes;
  }

  uint64_t expert_bytes_read() const override {
    uint64_t bytes = 0;
    for (const RankModel& rank : model_.ranks)
      if (const auto& work = rank.workspace.experts.work) bytes += work->weight_bytes_read;
    return bytes;
  }

  uint64_t shared_kv_bytes() const override {
    return std::accumulate(shared_kv_bytes_.begin(), shared_kv_bytes_.end(), uint64_t{0});
  }

  std::vector<RankPlacement> placements() const override {
    const auto nodes_of = [](const Pages& pages) {
      return NodesOf(pages.data(), pages.size_bytes());
    };
    std::vector<RankPlacement> all;
    for (const RankModel& rank : model_.ranks)
      all.push_back({.weights = nodes_of(rank.weights.storage),
                     .kv = blocks_ ? nodes_of(rank.cache.storage()) : MemoryNodes{},
                     .workspace = nodes_of(rank.workspace.storage)});
    return all;
  }

  KvPieces kv_pieces() const override {
    KvPieces pieces;
    pieces.parts = 0;  // without layers that have a cache
    if (!blocks_) return pieces;
    for (const RankModel& rank : model_.ranks) {
      pieces.span_blocks = std::max(pieces.span_blocks, rank.cache.span_blocks());
      pieces.parts = std::max(pieces.parts, rank.cache.parts());
    }
    pieces.count = (*blocks_ + pieces.span_blocks - 1) / pieces.span_blocks * pieces.parts;
    return pieces;
  }

  void TouchKv(size_t first, size_t last) override {
    const KvPieces pieces = kv_pieces();
    CHECK(first <= last && last <= pieces.count) << first << " to " << last;
    ranks_.Run([&](const Worker& worker) {
      KvCache& cache = model_.ranks[static_cast<size_t>(worker.rank)].cache;
      worker.ShareOneByOne(last - first, [&](size_t i) {
        const size_t piece = first + i, block = piece / pieces.parts * pieces.span_blocks;
        cache.Touch(piece % pieces.parts, block, std::min(block + pieces.span_blocks, *blocks_));
      });
    });
  }

  size_t block_image_bytes(size_t table, size_t layers) const override {
    return blocks_ ? images_.Bytes(model_.ranks, table, layers) : 0;
  }
  size_t state_image_bytes() const override {
    size_t bytes = 0;
    for (const RankModel& rank : model_.ranks) bytes += rank.states.floats_per_place();
    return bytes * sizeof(float);
  }

  void ReadBlocks(const BlockImages& of, std::byte* images) const override {
    images_.Read(model_.ranks, of, images);
  }
  // Memory that is touched for the first time lies on its owner's node.
  void WriteBlocks(const BlockImages& of, const std::byte* images) override {
    ranks_.Run([&](const Worker& worker) {
      worker.ShareOneByOne(of.blocks.size(), [&](size_t i) {
        images_.Write(model_.ranks, of, i, static_cast<size_t>(worker.rank), images);
      });
    });
  }

  void ReadState(int32_t place, std::byte* image) const override {
    for (const RankModel& rank : model_.ranks) {
      CHECK(rank.states.Holds(place)) << place;
      const size_t bytes = rank.states.floats_per_place() * sizeof(float);
      if (bytes > 0) std::memcpy(image, rank.states.All(place), bytes);
      image += bytes;
    }
  }
  void WriteState(int32_t place, const std::byte* image) override {
    ranks_.Run([&](const Worker& worker) {
      const auto rank = static_cast<size_t>(worker.rank);
      const StateCache& states = model_.ranks[rank].states;
      CHECK(states.Holds(place)) << place;
      size_t before = 0;
      for (size_t i = 0; i < rank; ++i) before += model_.ranks[i].states.floats_per_place();
      const size_t bytes = states.floats_per_place() * sizeof(float);
      if (bytes > 0)
        worker.Once([&] { std::memcpy(states.All(place), image + before * sizeof(float), bytes); });
    });
  }

  void Observe(ActivationObserver* observer) override { model_.observer = observer; }

  void Forward(const StepBatch& batch, const LogitsSink& sink) override {
    CHECK(model_.spec.stage.embeds && model_.spec.stage.ends) << model_.spec.stage.begin;
    CheckStep(batch);
    ranks_.Run([&](const Worker& worker) {
      Plan(worker, batch, {&batch, 1});
      Compute(worker, batch, {}, sink);
    });
  }

  void PlanStage(const StepBatch& step, std::span<const StepBatch> parts) override {
    CheckStep(step);
    ranks_.Run([&](const Worker& worker) { Plan(worker, step, parts); });
  }
  void ForwardStage(const StepBatch& part, const Handover& handover,
                    const LogitsSink& sink) override {
    const StageSpec& stage = model_.spec.stage;
    CHECK(stage.embeds == !handover.taken && stage.ends == !handover.given) << stage.begin;
    ranks_.Run([&](const Worker& worker) { Compute(worker, part, handover, sink); });
  }

 private:
  // Everything but what the processes of a model tell each other.
  Status LoadOwn() {
    const DecoderSpec& spec = model_.spec;
    PINION_ASSIGN(model_.embedding, source_->Find(spec.names.embedding));
    if (!spec.names.position_embedding.empty()) {
      PINION_ASSIGN(model_.position_embedding, source_->Find(spec.names.position_embedding));
    }
    if (!spec.names.type_embedding.empty()) {
      PINION_ASSIGN(model_.type_embedding, source_->Find(spec.names.type_embedding));
    }
    if (!spec.names.layer_input_table.empty()) {
      PINION_ASSIGN(model_.layer_input_table, source_->Find(spec.names.layer_input_table));
    }
    PINION_ASSIGN(std::vector<RankWeights> weights,
                  LoadWeights(spec, model_.options.formats, model_.options.moe_prepack, *source_,
                              ranks_, SpanOf(model_.options, ranks_.count()), model_.options.memory,
                              model_.options.shared));
    model_.options.shared = {};  // it need not live as long
    if (!model_.options.moe_prepack) KeepPlainExperts();
    model_.ranks.resize(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      RankModel& rank = model_.ranks[i];
      rank.weights = std::move(weights[i]);
      PINION_ASSIGN(rank.workspace,
                    Workspace::Allocate(spec, rank.weights.shard, model_.options.formats,
                                        model_.options.max_rows,
                                        static_cast<size_t>(ranks_.threads(static_cast<int>(i))),
                                        model_.options.memory_of(i)));
    }
    model_.logits_stride =
        kernels::RoundUp(static_cast<size_t>(spec.output_width()), kernels::kBlockN);
    PINION_ASSIGN(logits_, Pages::Allocate(kLogitChunk * model_.logits_stride * sizeof(float),
                                           model_.options.memory_of(0)));
    model_.logits = logits_.as<float>();
    model_.kv_places.resize(spec.layer_specs.size());
    for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
      if (!Attends(spec.layer_specs[layer].mixer)) continue;
      attending_.push_back(layer);
      model_.kv_places[layer] = KvPlaceOf(spec, layer);
    }
    for (RankModel& rank : model_.ranks) SharePlans(rank);
    shared_kv_bytes_.resize(model_.ranks.size());
    return {};
  }

  void SharePlans(RankModel& rank) {
    std::vector<AttendingLayer> layers;
    for (const size_t layer : attending_)
      layers.push_back({layer, LayerAttention(model_.spec, layer).reach,
                        &rank.weights.shard.Heads(layer), model_.kv_places[layer].table});
    rank.workspace.plans.Share(layers);
  }

  void CheckStep(const StepBatch& step) const {
    CHECK(step.tokens.size() <= model_.options.max_rows) << step.tokens.size();
    CHECK(blocks_.has_value()) << "AllocateKv comes first";
    for (const StepBatch::Slice& slice : step.slices) {
      for (const int32_t place :
           {slice.place, std::max(0, slice.begins_from), std::max(0, slice.keeps_in)})
        CHECK(model_.ranks[0].states.Holds(place)) << place;
      CHECK(slice.first_position > 0 || slice.begins_from < 0) << slice.begins_from;
      CHECK(slice.first_position == 0 || !model_.spec.bidirectional) << slice.first_position;
    }
    CHECK(step.types.empty() || step.types.size() == step.tokens.size()) << step.types.size();
    for (const int32_t type : step.types)
      CHECK(type >= 0 && type < model_.spec.token_types) << "token type " << type;
  }

  void Compute(const Worker& worker, const StepBatch& batch, const Handover& handover,
               const LogitsSink& sink) {
    const TraceSpan span("forward", "rows", batch.tokens.size());
    RunForward(model_, worker, batch, handover, sink);
  }

  // Each rank plans for itself: in its memory, and at the same time as the others. A thread of the
  // rank plans a small step alone. Of a larger one, threads lay the plans of different kinds of
  // layers, and write their items together.
  void Plan(const Worker& worker, const StepBatch& step, std::span<const StepBatch> parts) {
    const auto rank = static_cast<size_t>(worker.rank),
               threads = static_cast<size_t>(worker.threads);
    AttentionPlans& plans = model_.ranks[rank].workspace.plans;
    const size_t block_tokens = model_.options.block_tokens, kinds = plans.kinds();
    if (threads == 1 || step.tokens.size() * kinds < kTokensToPlanTogether)
      return worker.Once([&] {
        const TraceSpan span("plan");
        plans.Build(step, parts, threads, block_tokens);
        PlanIndex(rank, parts);
        FinishPlans(rank);
      });
    worker.ShareOneByOne(kinds + 1, [&](size_t kind) {
      const TraceSpan span("plan");
      kind < kinds ? plans.Lay(kind, step, parts, threads, block_tokens) : PlanIndex(rank, parts);
    });
    worker.ShareOneByOne(threads + 1, [&](size_t piece) {
      const TraceSpan span("plan");
      piece == 0 ? FinishPlans(rank) : plans.Expand(piece - 1, threads);
    });
  }

  // If latent attention has an indexer.
  void PlanIndex(size_t rank, std::span<const StepBatch> parts) {
    if (model_.spec.index.heads == 0) return;
    RankModel& own = model_.ranks[rank];
    own.workspace.index.Plan(
        parts, own.weights.shard, LayerAttention(model_.spec, attending_.front()).reach,
        static_cast<size_t>(ranks_.threads(static_cast<int>(rank))), model_.options.block_tokens,
        PartFloats(WidestCachedShape(model_.spec)));
  }

  // Counts and buffers that follow from the plans' sizes.
  void FinishPlans(size_t rank) {
    CountShared(rank);
    Workspace& w = model_.ranks[rank].workspace;
    const size_t floats = w.plans.slots() * PartFloats(WidestCachedShape(model_.spec));
    if (w.parts.size() < floats) w.parts.resize(floats);
  }

  void CountShared(size_t rank) {
    const RankModel& own = model_.ranks[rank];
    for (const size_t layer : attending_) {
      const uint64_t token_bytes =
          CachedShape(model_.spec, layer).TokenBytes(model_.options.cached()) *
          own.weights.shard.Heads(layer).kv_heads.size();
      for (const AttentionPlan& plan : own.workspace.plans.of_layer(layer))
        shared_kv_bytes_[rank] += plan.shared_tokens * token_bytes;
    }
  }

  void KeepPlainExperts() {
    for (int layer = 0; layer < model_.spec.layers; ++layer) {
      const bool has = model_.spec.layer_specs[static_cast<size_t>(layer)].mlp == MlpKind::kExperts;
      model_.plain_experts.push_back(
          has ? std::make_unique<PlainExperts>(model_.spec, layer, *source_) : nullptr);
    }
  }

  Ranks& ranks_;
  std::shared_ptr<const TensorSource> source_;
  const KvImages images_;
  Pages logits_;
  LoadedModel model_;
  std::vector<size_t> attending_;          // the layers that do
  std::optional<size_t> blocks_;           // of each cache, once there are any
  std::vector<uint64_t> shared_kv_bytes_;  // [ranks]
};

}  // namespace

Result<std::unique_ptr<Decoder>> Decoder::Load(const DecoderSpec& spec,
                                               std::shared_ptr<const TensorSource> source,
                                               Ranks& ranks, const DecoderOptions& options) {
  auto decoder = std::make_unique<ShardedDecoder>(spec, std::move(source), ranks, options);
  PINION_TRY(decoder->Load());
  return decoder;
}

uint64_t WorkspaceBytes(const DecoderSpec& spec, const DecoderOptions& options, int ranks,
                        int rank) {
  const Shard shard = MakeShard(spec, options.SharesOf(ranks), rank);
  const uint64_t own =
      Workspace::Bytes(spec, shard, options.formats, options.max_rows) + IndexScoreBytes(spec);
  const size_t processes = options.communicator ? options.communicator->processes() : 1;
  const size_t local_ranks = static_cast<size_t>(ranks) / processes;
  if (static_cast<size_t>(rank) % local_ranks != 0) return own;
  return own + kLogitChunk * sizeof(float) * static_cast<uint64_t>(spec.output_width()) +
         RankExchange::Bytes(spec, options, local_ranks);
}

}  // namespace pinion
