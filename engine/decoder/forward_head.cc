// The end of a forward pass: the last norm and the head.

#include <algorithm>

#include "engine/base/trace.h"
#include "engine/decoder/forward_pass.h"

namespace pinion {
namespace {

void NormWanted(const ForwardPass& pass, size_t first, size_t count) {
  pass.worker.Share(count, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const auto row = static_cast<size_t>(pass.batch.logit_rows[first + i]);
      NormRow(pass, pass.weights.final_norm, pass.normed(i), pass.activation, pass.residual(row));
    }
  });
}

// Scales and caps logits while they are in cache.
void Finish(const ForwardPass& pass, float* logits, size_t n) {
  if (pass.spec.logit_multiplier != 1) pass.table.scale(logits, pass.spec.logit_multiplier, n);
  if (pass.spec.logit_soft_cap > 0) pass.table.soft_cap(logits, pass.spec.logit_soft_cap, n);
}

void MultiplyHead(const ForwardPass& pass, size_t count) {
  const TraceSpan span("head", "rows", count);
  const PackedMatrix& head = pass.weights.head;
  const PreparedRows x = Prepare(pass, head, pass.w.normed, count);
  const size_t stride = pass.model.logits_stride;
  float* all = pass.model.logits + pass.weights.shard.vocabulary.begin;
  const auto multiply = [&](size_t begin, size_t end) {
    float* logits = all + begin * kernels::kBlockN;
    Multiply(pass, head, x, 0, count, begin, end - begin, logits, stride);
    for (size_t i = 0; i < count; ++i)
      Finish(pass, logits + i * stride, (end - begin) * kernels::kBlockN);
  };
  pass.worker.Share(head.blocks(), ChunkBlocks(head, count), multiply, PhaseScope::kRanks);
  Fetch(pass,
        [&](RankExchange& exchange) { exchange.FetchLogits(pass.model.logits, count, stride); });
}

// The output of a model without a head: every rank has it, and rank 0 publishes it.
void CopyHidden(const ForwardPass& pass, size_t first, size_t count) {
  pass.worker.Share(pass.worker.rank == 0 ? count : 0, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const auto row = static_cast<size_t>(pass.batch.logit_rows[first + i]);
      NormRow(pass, pass.weights.final_norm, pass.model.logits + i * pass.model.logits_stride,
              kernels::Dtype::kF32, pass.residual(row));
    }
  });
}

}  // namespace

void ComputeLogits(const ForwardPass& pass, const LogitsSink& sink) {
  const size_t wanted = pass.batch.logit_rows.size();
  for (size_t first = 0; first < wanted; first += kLogitChunk) {
    const size_t count = std::min(kLogitChunk, wanted - first);
    if (first > 0) pass.worker.GlobalBarrier();  // the sink may still be reading the last chunk
    if (pass.spec.has_head()) {
      NormWanted(pass, first, count);
      MultiplyHead(pass, count);
    } else {
      CopyHidden(pass, first, count);
    }
    if (pass.worker.rank == 0 && pass.model.exchange.leads())
      sink(pass.worker, first, count, pass.model.logits, pass.model.logits_stride);
  }
}

}  // namespace pinion
