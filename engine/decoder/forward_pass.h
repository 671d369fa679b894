#pragma once

#include <algorithm>

#include "engine/base/trace.h"
#include "engine/decoder/activation_observer.h"
#include "engine/decoder/forward.h"

namespace pinion {

// One thread's view of a step, which every part of the forward pass reads. The parts are functions
// in files of their own (forward_*.cc); each states what it reads and writes, and is one or more
// phases (Phases). Those that take rows [begin, end) belong to a phase of their caller.
struct ForwardPass {
  ForwardPass(LoadedModel& model, const Worker& worker, const StepBatch& batch);

  LoadedModel& model;
  const DecoderSpec& spec;
  const kernels::Table& table;
  const kernels::IntTable& integers;
  const kernels::E4m3Table& e4m3;
  const Worker& worker;
  const StepBatch& batch;
  const RankWeights& weights;  // of the worker's rank, as the next four
  KvCache& cache;
  StateCache& states;
  Workspace& w;
  ThreadScratch& scratch;
  const kernels::Dtype activation;  // of normed, attended and mlp
  const size_t rows, hidden;

  float* residual(size_t row) const { return w.residual + row * hidden; }
  float* stream(size_t index, size_t row) const {
    return w.streams.streams + index * w.streams.stream_floats + row * w.hidden_stride;
  }
  std::byte* normed(size_t row) const {
    return w.normed + row * w.normed_stride * kernels::SizeOf(activation);
  }
};

// Shows the model's observer, if there is one, rows that are about to be multiplied. Called by all
// threads of the team at once, which synchronise afterwards.
void Observe(const ForwardPass& pass, const ObservedRows& rows);
// Shows the inputs of a layer's matrix: x, [rows][matrix.k_padded()] activations. plan: as in
// ObservedRows.
void Observe(const ForwardPass& pass, const PackedMatrix& matrix, const std::byte* x, size_t rows,
             const ExpertPlan* plan = nullptr);

// Prepares `src`, one row of activations, for a matrix that prepares(): rounds it to int8, in the
// order of the matrix's columns, or to values of e4m3, which stay in the type of activations.
void PrepareRow(const ForwardPass& pass, const PackedMatrix& matrix, const std::byte* src,
                std::byte* dst);

// Rows of activations, `stride` bytes apart.
struct PreparedRows {
  const std::byte* first;
  size_t stride;
};

// Returns `x` as the matrix multiplies it: prepared, or copied with a gap behind each row, by all
// threads of the team in a phase of its own; or x itself. x: [rows][matrix.k_padded()] activations.
PreparedRows Prepare(const ForwardPass& pass, const PackedMatrix& matrix, const std::byte* x,
                     size_t rows);

// y[rows][blocks * 64] = x * (`blocks` packed blocks at w, of `matrix`'s form)^T; x: prepared rows,
// x_stride bytes apart, or 0: matrix.prepared_row_bytes(). Only a matrix of floats may have
// another.
struct BlockProduct {
  const std::byte *x, *w;
  float* y;
  size_t rows, blocks, ldy, x_stride = 0;
};
void MultiplyBlocks(const ForwardPass& pass, const PackedMatrix& matrix,
                    const BlockProduct& product);

// y[rows][blocks * 64] = x * matrix^T for `blocks` column blocks from `block` on, and rows [row,
// row + rows) of x.
void Multiply(const ForwardPass& pass, const PackedMatrix& matrix, const PreparedRows& x,
              size_t row, size_t rows, size_t block, size_t blocks, float* y, size_t ldy);

// The best way to cut the step's rows for products with a matrix.
kernels::ProductCut CutOf(const ForwardPass& pass, const PackedMatrix& matrix);

// Items [begin, end) of parts x units, part after part: body(row, rows, first, last) for the rows
// of each part that they touch, by its units [first, last).
template <typename Body>
void ForParts(const kernels::ProductParts& parts, size_t units, size_t begin, size_t end,
              const Body& body) {
  while (begin < end) {
    const size_t part = begin / units, first = part * units, stop = std::min(end, first + units);
    body(parts.Begin(part), parts.Size(part), begin - first, stop - first);
    begin = stop;
  }
}

// A phase: body(row, rows, begin, end) for parts of the step's rows, at most `most_rows` each, and
// the blocks [begin, end) of `matrix`, in multiples of `unit`. One part after the other, so that a
// thread continues with the rows that it has in cache. least: blocks per call, as in ProductCut.
template <typename Body>
void ShareProducts(const ForwardPass& pass, const PackedMatrix& matrix, size_t most_rows,
                   size_t least, size_t unit, const Body& body,
                   PhaseScope scope = PhaseScope::kTeam) {
  const kernels::ProductParts parts(pass.rows, most_rows);
  const size_t units = matrix.blocks() / unit;
  const size_t chunk = std::max(ChunkBlocks(matrix, parts.Size(0), unit), least) / unit;
  const auto run = [&](size_t begin, size_t end) {
    ForParts(parts, units, begin, end, [&](size_t row, size_t rows, size_t first, size_t last) {
      body(row, rows, first * unit, last * unit);
    });
  };
  pass.worker.Share(parts.count * units, chunk, run, scope);
}

// dst[rows][...] = x * matrix^T + bias; x: activations of `pass.rows`. name: of the trace's span.
// bias: [matrix.outputs], or null.
void Project(const ForwardPass& pass, const char* name, const PackedMatrix& matrix,
             const std::byte* x, float* dst, size_t stride, PhaseScope scope = PhaseScope::kTeam,
             const float* bias = nullptr);

// dst[hidden] of `dst_type` = norm(src); a norm without weight copies. In place if dst is src.
void NormRow(const ForwardPass& pass, const NormWeights& norm, void* dst, kernels::Dtype dst_type,
             const float* src);

// fetch(exchange) on one thread of the process, after the last phase of kRanks scope and before
// whatever follows on any rank; nothing if all ranks are in this process.
template <typename Body>
void Fetch(const ForwardPass& pass, const Body& fetch) {
  RankExchange& exchange = pass.model.exchange;
  if (!exchange.spread()) return;
  const auto run = [&](size_t, size_t) {
    const TraceSpan span("exchange");
    fetch(exchange);
  };
  pass.worker.Share(pass.worker.rank == 0 ? 1 : 0, 1, run, PhaseScope::kRanks);
}

// dst[n] = a row of a tensor of the checkpoint.
void ReadRow(const ForwardPass& pass, const TensorInfo& tensor, size_t row, size_t n, float* dst);

// Writes residual (embeddings of the tokens, and their norm), if wanted, and the rotary tables of
// the rows.
void Embed(const ForwardPass& pass, bool embeds, size_t begin, size_t end);

// Reads normed, writes attention_partial: this rank's term of attention. All ranks synchronise
// after it, and also inside if queries and keys are normalised over the whole projection.
void RunAttention(const ForwardPass& pass, size_t layer);

// RunAttention for latent attention.
void RunLatentAttention(const ForwardPass& pass, size_t layer);

// Parts of it if it has an indexer. The first reads normed and the compressed queries, writes index
// keys to the cache and index queries. The second reads these and the latent queries and, for rows
// that choose what they see, writes attended.
void IndexTokens(const ForwardPass& pass, size_t layer);
void AttendChosen(const ForwardPass& pass, size_t layer);

// RunAttention's counterpart in a layer of Gated DeltaNet: also reads and writes the states of the
// step's sequences.
void RunDeltaNet(const ForwardPass& pass, size_t layer);

// The same in a layer of gated short convolution.
void RunShortConv(const ForwardPass& pass, size_t layer);

// The same in a layer of Mamba-2; writes mamba_partial if the layer attends, too. If a run of heads
// that is normalised together is not on one rank, all ranks synchronise inside.
void RunMamba(const ForwardPass& pass, size_t layer);
// After both: adds mamba_partial to attention_partial, each times its multiplier.
void AddMamba(const ForwardPass& pass, size_t layer);

// Reads normed, writes mlp_partial: this rank's term of the MLP. All ranks synchronise after it.
void RunMlp(const ForwardPass& pass, size_t layer);

// The same of a layer that keeps its largest gates alone. All ranks synchronise inside.
void RunLargestGates(const ForwardPass& pass, size_t layer);

// Reads normed, which holds the embeddings: writes the inputs of all layers.
void ComputeLayerInputs(const ForwardPass& pass);
// Reads normed, which holds what a layer makes of its input, and writes streams.term, without norm.
void RunLayerInput(const ForwardPass& pass, size_t layer);

// Several residual streams. SpreadStreams reads normed and residual, which hold the embeddings, and
// writes all of them; PredictStreams also the layer's residual; CorrectStreams takes this back;
// GatherStreams makes it of all of them.
void SpreadStreams(const ForwardPass& pass);
void PredictStreams(const ForwardPass& pass, size_t layer, size_t begin, size_t end);
void CorrectStreams(const ForwardPass& pass, size_t layer, size_t begin, size_t end);
void GatherStreams(const ForwardPass& pass);

// The low-rank term beside attention. RunLaurel reads normed and writes streams.term, which
// AddLaurel adds to residual together with normed.
void RunLaurel(const ForwardPass& pass, size_t layer);
void AddLaurel(const ForwardPass& pass, size_t layer, size_t begin, size_t end);

// The first half of RunMlp: writes the activations of layer.mlp_in to mlp,
// [rows][layer.down.k_padded()]. Does nothing if the layer has no such MLP.
void RunMlpIn(const ForwardPass& pass, const LayerWeights& layer, std::byte* mlp);

// RunMlp for a layer of experts. Also reads what NormForRouter wrote.
void RunExperts(const ForwardPass& pass, size_t layer);

// Writes the router's input, always in float32: rounding must not change the choice of experts; and
// the experts', if it is not normed. Does nothing if normed is float32 already, and for both.
void NormForRouter(const ForwardPass& pass, const LayerWeights& layer, size_t begin, size_t end);

// Reads residual, hands logits of the wanted rows (hidden states, without a head) to `sink` in
// chunks.
void ComputeLogits(const ForwardPass& pass, const LogitsSink& sink);

}  // namespace pinion
