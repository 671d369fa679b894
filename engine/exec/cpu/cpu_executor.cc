#include "engine/exec/cpu/cpu_executor.h"

#include <algorithm>
#include <utility>

#include "engine/base/trace.h"
#include "engine/spec/kv_tables.h"

namespace pinion {
namespace {

// The same step for the decoder; it points to the tables of `input`.
void Lay(const StepInput& input, StepBatch& batch) {
  batch.Clear();
  batch.tokens = input.tokens;
  batch.types = input.types;
  for (const StepInput::Slice& slice : input.slices) {
    StepBatch::Slice& to = batch.slices.emplace_back(StepBatch::Slice{slice.first_row,
                                                                      slice.rows,
                                                                      slice.first_position,
                                                                      {},
                                                                      slice.place,
                                                                      slice.begins_from,
                                                                      slice.keeps_in});
    for (size_t table = 0; table < slice.block_tables.size(); ++table)
      to.block_tables.at(table) = slice.block_tables[table].data();
  }
  for (const WantedRow& wanted : input.wanted) batch.logit_rows.push_back(wanted.row);
  batch.parts = input.parts;
}

}  // namespace

CpuExecutor::CpuExecutor(const kernels::Table& table, const DecoderSpec& spec, bool is_whole,
                         size_t stages)
    : table_(table),
      width_(static_cast<size_t>(spec.output_width())),
      tables_(KvTables(spec)),
      is_whole_(is_whole),
      open_(stages) {}

Result<std::unique_ptr<CpuExecutor>> CpuExecutor::Load(CpuLoad load) {
  std::unique_ptr<CpuExecutor> executor(
      new CpuExecutor(kernels::TableFor(load.options.isa), load.spec, load.world == nullptr,
                      static_cast<size_t>(load.partition.stages)));
  if (load.partition.stages > 1) {
    PINION_ASSIGN(Pipeline pipeline, StartPipeline(load.spec, std::move(load.weights), load.plan,
                                                   load.options, load.partition, load.world));
    executor->ranks_ = std::move(pipeline.ranks);
    executor->staged_ = pipeline.decoder.get();
    executor->decoder_ = std::move(pipeline.decoder);
    return executor;
  }
  PINION_ASSIGN(executor->ranks_, StartRanks(load.plan, load.options));
  PINION_ASSIGN(executor->decoder_,
                Decoder::Load(load.spec, std::move(load.weights), *executor->ranks_, load.options));
  return executor;
}

Status CpuExecutor::AllocateKv(const KvRoom& room) {
  PINION_TRY(decoder_->AllocateKv(room.blocks, room.max_model_len, room.places));
  const uint64_t rank_bytes = decoder_->kv_bytes() / static_cast<uint64_t>(ranks_->count());
  ahead_.emplace(decoder_->kv_pieces(), ReserveBlocks(room.blocks, rank_bytes, room.burst));
  return {};
}

void CpuExecutor::Begin(const StepInput& input) {
  const TraceSpan span("lay");
  OpenStep& step = open_.Push();
  step.input = &input;
  Lay(input, step.batch);
  if (input.hands_over) step.batch.written = &step.written;
  if (staged_) staged_->Begin(step.batch);
}

StepOutput CpuExecutor::Finish(StepCaller& caller) {
  OpenStep& step = open_.oldest();
  samplers_.Update(*step.input);
  step.written = [&](size_t layers) { caller.Written(BytesOfLayers(layers)); };
  const TraceSpan span("execute");
  RowResults results(table_, width_, *step.input, samplers_, caller);
  const LogitsSink sink = [&](const Worker& worker, size_t first, size_t count, float* logits,
                              size_t stride) {
    results.Take(worker, first, count, logits, stride);
  };
  staged_ ? staged_->Finish(sink) : decoder_->Forward(step.batch, sink);
  open_.Pop();
  return results.TakeOutput();
}

ExecutorMemory CpuExecutor::memory() const {
  return {decoder_->weight_bytes(), decoder_->kv_bytes(), decoder_->state_bytes()};
}

StepReads CpuExecutor::reads() const {
  return {decoder_->expert_bytes_read(), decoder_->shared_kv_bytes()};
}

std::vector<double> CpuExecutor::waited_s() const {
  std::vector<double> waited_s;
  for (int rank = 0; rank < ranks_->count(); ++rank) waited_s.push_back(ranks_->waited_s(rank));
  return waited_s;
}

bool CpuExecutor::AheadOfUse(size_t reached, bool half) const {
  return ahead_ && ahead_->Left(reached, half);
}

void CpuExecutor::PrepareKv(size_t reached, bool half) {
  const auto most = static_cast<size_t>(ranks_->threads(0));
  const KvAhead::Range pieces = ahead_->Next(reached, std::max<size_t>(1, most), half);
  if (pieces.empty()) return;
  const TraceSpan span("touch kv", "pieces", pieces.last - pieces.first);
  decoder_->TouchKv(pieces.first, pieces.last);
}

ImageBytes CpuExecutor::image_bytes() const {
  if (!is_whole_) return {};
  return {BytesOfLayers(SIZE_MAX), decoder_->state_image_bytes()};
}

std::vector<size_t> CpuExecutor::BytesOfLayers(size_t layers) const {
  std::vector<size_t> bytes;
  for (size_t table = 0; table < tables_; ++table)
    bytes.push_back(decoder_->block_image_bytes(table, layers));
  return bytes;
}

void CpuExecutor::ReadBlocks(std::span<const int32_t> blocks, const ImagePart& part,
                             std::byte* images) {
  const TraceSpan span("read blocks", "blocks", blocks.size());
  decoder_->ReadBlocks({part.table, blocks, part.first, part.bytes, part.bytes}, images);
}

void CpuExecutor::WriteBlocks(std::span<const int32_t> blocks, const ImagePart& part,
                              const std::byte* images) {
  const TraceSpan span("write blocks", "blocks", blocks.size());
  decoder_->WriteBlocks({part.table, blocks, part.first, part.bytes, part.bytes}, images);
}

}  // namespace pinion
