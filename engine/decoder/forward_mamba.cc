// Mamba-2: projection, causal convolution, the state's recurrence, gate, norm over runs of heads,
// output.

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/trace.h"
#include "engine/decoder/forward_conv.h"

namespace pinion {
namespace {

using kernels::Dtype;

struct Mamba {
  Mamba(const ForwardPass& pass, size_t index)
      : pass(pass),
        spec(pass.spec.mamba),
        index(index),
        weights(pass.weights.layers[index].mamba),
        heads(pass.weights.shard.mamba_heads),
        groups(pass.weights.shard.mamba_groups),
        columns(spec, pass.weights.shard),
        head_dim(static_cast<size_t>(spec.head_dim)),
        state_dim(static_cast<size_t>(spec.state_dim)),
        runs_are_whole(normalises() && RunsAreWhole()) {}

  const ForwardPass& pass;
  const MambaSpec& spec;
  const size_t index;
  const MambaWeights& weights;
  const Range heads, groups;
  const MambaColumns columns;
  const size_t head_dim, state_dim;
  // Whether every run of heads that is normalised together is on one rank. All ranks agree.
  const bool runs_are_whole;

  size_t group_of(size_t head) const {
    return (heads.begin + head) / static_cast<size_t>(spec.heads_per_group()) - groups.begin;
  }
  bool normalises() const { return spec.norm_runs > 0; }
  size_t heads_per_run() const { return static_cast<size_t>(spec.heads / spec.norm_runs); }
  bool RunsAreWhole() const {
    const RankExchange& exchange = pass.model.exchange;
    for (size_t rank = 0; rank < exchange.ranks(); ++rank)
      if (exchange.shard(rank).mamba_heads.begin % heads_per_run() != 0) return false;
    return true;
  }
  float* projected(size_t row) const { return pass.w.qkv + row * pass.w.qkv_stride; }
  // Of `head` among the rank's: its x and then its output; its gate and then its gated output.
  float* x(size_t row, size_t head) const { return projected(row) + head * head_dim; }
  float* z(size_t row, size_t head) const { return x(row, head) + columns.z; }
  std::byte* output(size_t row, size_t head) const {
    const size_t at = row * weights.out.k_padded() + head * head_dim;
    return pass.w.recurred + at * kernels::SizeOf(pass.activation);
  }
};

void Convolve(const Mamba& mamba) {
  const ForwardPass& pass = mamba.pass;
  const Convolution convolution = {.layer = mamba.index,
                                   .src = pass.w.qkv,
                                   .channels = mamba.columns.channels(),
                                   .taps = mamba.weights.conv,
                                   .width = static_cast<size_t>(mamba.spec.conv_width)};
  const auto activate = [&](size_t, size_t first, size_t n, float* dst) {
    if (mamba.weights.conv_bias) pass.table.add(dst, mamba.weights.conv_bias + first, n);
    pass.table.activate(dst, Dtype::kF32, kernels::Activation::kSilu, dst, n);
  };
  ShareConvolution(
      pass, convolution, [](size_t, size_t, size_t, float*) {}, activate);
}

// ---- The recurrence.

float TimeStep(const Mamba& mamba, size_t row, size_t head) {
  const float raw = mamba.projected(row)[mamba.columns.dt + head] * mamba.spec.multipliers.dt;
  const float dt = Softplus(raw + mamba.weights.dt_bias[head]);
  return std::clamp(dt, mamba.spec.dt_min, mamba.spec.dt_max);
}

// The gated output of a head: rounded to where `out` takes it, or in float32 to where the norm
// does, with its sum of squares.
void GateHead(const Mamba& mamba, size_t row, size_t head) {
  const auto& table = mamba.pass.table;
  float *y = mamba.x(row, head), *z = mamba.z(row, head);
  const auto silu = kernels::Activation::kSilu;
  if (mamba.spec.multipliers.z != 1) table.scale(z, mamba.spec.multipliers.z, mamba.head_dim);
  if (!mamba.normalises())
    return table.activate_gated(mamba.output(row, head), mamba.pass.activation, silu, z, y,
                                mamba.head_dim);
  table.activate_gated(z, Dtype::kF32, silu, z, y, mamba.head_dim);
  const RowSums squares(mamba.pass.spec);
  mamba.pass.model.exchange
      .own_row_sums()[row * squares.stride + squares.mamba + mamba.heads.begin + head] =
      table.sum_squares(z, mamba.head_dim);
}

// Of rows from `begin` on: the factors of the state, and those of x.
constexpr size_t kChunk = kernels::kStateChunk;
struct Steps {
  Steps(const Mamba& mamba, size_t begin, size_t rows, size_t head) {
    const float a = std::exp(mamba.weights.log_a[head]);
    for (size_t i = 0; i < rows; ++i) {
      dt[i] = TimeStep(mamba, begin + i, head);
      decay[i] = std::exp(-a * dt[i]);
    }
  }
  std::array<float, kChunk> decay, dt;
};

// The columns of a group's B or C, of which `first` is the first group's.
const float* OfGroup(const Mamba& mamba, size_t row, size_t first, size_t group) {
  return mamba.projected(row) + first + group * mamba.state_dim;
}

// A row's scores, of the group's C with B of its chunk: [kChunk].
float* Scores(const Mamba& mamba, size_t row, size_t group) {
  return mamba.pass.w.state_scores + (row * mamba.groups.size() + group) * kChunk;
}

// Rows of one sequence, at most kChunk, one by one.
void RunRows(const Mamba& mamba, size_t begin, size_t rows, size_t head, float* state) {
  const Steps steps(mamba, begin, rows, head);
  const size_t group = mamba.group_of(head), stride = mamba.pass.w.qkv_stride;
  mamba.pass.table.state_space({.state = state,
                                .x = mamba.x(begin, head),
                                .b = OfGroup(mamba, begin, mamba.columns.b, group),
                                .c = OfGroup(mamba, begin, mamba.columns.c, group),
                                .stride = stride,
                                .tokens = rows,
                                .state_dim = mamba.state_dim,
                                .head_dim = mamba.head_dim,
                                .decay = steps.decay.data(),
                                .dt = steps.dt.data(),
                                .skip = mamba.weights.skip[head],
                                .out = mamba.x(begin, head),
                                .out_stride = stride});
}

// The same by matrix products, once the group's scores are computed.
void RunChunk(const Mamba& mamba, size_t begin, size_t rows, size_t head, float* state) {
  const Steps steps(mamba, begin, rows, head);
  const size_t group = mamba.group_of(head), stride = mamba.pass.w.qkv_stride;
  mamba.pass.table.state_space_chunk({.state = state,
                                      .x = mamba.x(begin, head),
                                      .b = OfGroup(mamba, begin, mamba.columns.b, group),
                                      .c = OfGroup(mamba, begin, mamba.columns.c, group),
                                      .stride = stride,
                                      .tokens = rows,
                                      .state_dim = mamba.state_dim,
                                      .head_dim = mamba.head_dim,
                                      .scores = Scores(mamba, begin, group),
                                      .scores_stride = mamba.groups.size() * kChunk,
                                      .decay = steps.decay.data(),
                                      .dt = steps.dt.data(),
                                      .skip = mamba.weights.skip[head],
                                      .out = mamba.x(begin, head),
                                      .out_stride = stride,
                                      .scratch = mamba.pass.scratch.state_chunk});
}

// From so many rows on a chunk is faster: 8 tokens take 0.75 to 0.9 of the time of one by one, 4 as
// much (build/pinion-bench --benchmark_filter='state_space/.*/prompt').
constexpr size_t kLeastScanChunk = 8;

// The rows of the chunk that begins at row `row` of a slice; 0 if those that are left are computed
// one by one.
size_t ChunkAt(const StepBatch::Slice& slice, size_t row) {
  const size_t rows = std::min(slice.first_row + slice.rows - row, kChunk);
  return rows >= kLeastScanChunk ? rows : 0;
}

// A phase: C times B within the chunks, which all heads of a group share. A thread takes the chunks
// that begin in a stretch of kChunk rows, at most one of each sequence.
void ScoreChunks(const Mamba& mamba) {
  const ForwardPass& pass = mamba.pass;
  const size_t groups = mamba.groups.size(), stretches = (pass.rows + kChunk - 1) / kChunk;
  const auto score = [&](size_t i) {
    const size_t stretch = i / groups * kChunk, group = i % groups;
    for (const StepBatch::Slice& slice : pass.batch.slices) {
      const size_t first = slice.first_row, end = std::min(stretch + kChunk, first + slice.rows);
      const size_t before = stretch > first ? (stretch - first + kChunk - 1) / kChunk : 0;
      const size_t row = first + before * kChunk;
      if (row >= end || ChunkAt(slice, row) == 0) continue;
      pass.table.state_space_scores({.b = OfGroup(mamba, row, mamba.columns.b, group),
                                     .c = OfGroup(mamba, row, mamba.columns.c, group),
                                     .stride = pass.w.qkv_stride,
                                     .tokens = ChunkAt(slice, row),
                                     .state_dim = mamba.state_dim,
                                     .scores = Scores(mamba, row, group),
                                     .scores_stride = groups * kChunk,
                                     .scratch = pass.scratch.state_chunk});
    }
  };
  pass.worker.ShareOneByOne(stretches * groups, score);
}

void RunSlice(const Mamba& mamba, const StepBatch::Slice& slice, size_t head, float* state) {
  const size_t end = slice.first_row + slice.rows;
  for (size_t row = slice.first_row, rows = 0; row < end; row += rows) {
    rows = ChunkAt(slice, row);
    if (rows > 0) {
      RunChunk(mamba, row, rows, head, state);
    } else {
      RunRows(mamba, row, rows = end - row, head, state);
    }
    for (size_t i = 0; i < rows; ++i) GateHead(mamba, row + i, head);
  }
}

// Heads of sequences are independent of each other, the tokens of a sequence are not.
void Recur(const Mamba& mamba) {
  const TraceSpan span("state space", "layer", mamba.index);
  const auto& slices = mamba.pass.batch.slices;
  const size_t heads = mamba.columns.heads;
  const auto has_chunk = [](const StepBatch::Slice& slice) {
    return ChunkAt(slice, slice.first_row) > 0;
  };
  if (std::any_of(slices.begin(), slices.end(), has_chunk)) ScoreChunks(mamba);
  const auto run = [&](size_t i) {
    const StepBatch::Slice& slice = slices[i / heads];
    float* state = mamba.pass.states.State(mamba.index, slice.place, i % heads);
    if (slice.first_position == 0) std::fill_n(state, mamba.state_dim * mamba.head_dim, 0.0f);
    RunSlice(mamba, slice, i % heads, state);
  };
  if (!mamba.normalises() || mamba.runs_are_whole)
    return mamba.pass.worker.ShareOneByOne(slices.size() * heads, run);
  mamba.pass.worker.ShareOneByOne(slices.size() * heads, run, PhaseScope::kRanks);
  Fetch(mamba.pass, [&](RankExchange& exchange) { exchange.FetchRowSums(mamba.pass.rows); });
}

// ---- The norm.

// 1 / RMS of a run of heads. Every rank adds the heads up in the same order, so that all of them
// get the same bits.
float RunScale(const Mamba& mamba, size_t row, size_t run) {
  const RankExchange& exchange = mamba.pass.model.exchange;
  const RowSums squares(mamba.pass.spec);
  const size_t heads = mamba.heads_per_run();
  const float* all = mamba.runs_are_whole ? exchange.own_row_sums() : exchange.row_sums();
  const float* of_run = all + row * squares.stride + squares.mamba + run * heads;
  float sum = 0;
  for (size_t i = 0; i < heads; ++i) sum += of_run[i];
  const auto elements = static_cast<float>(heads * mamba.head_dim);
  return 1 / std::sqrt(sum / elements + mamba.pass.spec.norm_eps);
}

// Some neighbouring heads of a row.
void NormRange(const Mamba& mamba, size_t row, Range heads) {
  const auto& table = mamba.pass.table;
  size_t run = 0;
  float scale = 0;
  for (size_t head = heads.begin; head < heads.end; ++head) {
    const size_t of_head = (mamba.heads.begin + head) / mamba.heads_per_run();
    if (head == heads.begin || of_head != run) scale = RunScale(mamba, row, run = of_head);
    float* gated = mamba.z(row, head);
    table.weigh(gated, mamba.weights.norm + head * mamba.head_dim, scale, mamba.head_dim);
    table.store(mamba.output(row, head), mamba.pass.activation, gated, mamba.head_dim);
  }
}

void NormHeads(const Mamba& mamba) {
  if (!mamba.normalises()) return;
  const TraceSpan span("norm");
  const size_t heads = mamba.columns.heads;
  mamba.pass.worker.Share(mamba.pass.rows * heads, [&](size_t begin, size_t end) {
    while (begin < end) {
      const size_t row = begin / heads, stop = std::min(end, (row + 1) * heads);
      NormRange(mamba, row, {begin - row * heads, stop - row * heads});
      begin = stop;
    }
  });
}

}  // namespace

void RunMamba(const ForwardPass& pass, size_t layer) {
  const Mamba mamba(pass, layer);
  Project(pass, "mamba_in", mamba.weights.in, pass.w.normed, pass.w.qkv, pass.w.qkv_stride);
  Convolve(mamba);
  Recur(mamba);
  NormHeads(mamba);
  const bool beside = Attends(pass.spec.layer_specs[layer].mixer);
  Project(pass, "mamba_out", mamba.weights.out, pass.w.recurred,
          beside ? pass.w.mamba_partial : pass.w.attention_partial, pass.w.hidden_stride,
          beside ? PhaseScope::kTeam : PhaseScope::kRanks);
}

void AddMamba(const ForwardPass& pass, size_t layer) {
  const TraceSpan span("add");
  const LayerWeights& weights = pass.weights.layers[layer];
  const auto add = [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      float* sum = pass.w.attention_partial + row * pass.w.hidden_stride;
      if (weights.o.outputs == 0)
        std::fill_n(sum, pass.hidden, 0.0f);
      else if (pass.spec.attention_multiplier != 1)
        pass.table.scale(sum, pass.spec.attention_multiplier, pass.hidden);
      if (weights.mamba.out.outputs > 0)
        pass.table.add_scaled(sum, pass.w.mamba_partial + row * pass.w.hidden_stride,
                              pass.spec.mamba.multipliers.out, pass.hidden);
    }
  };
  pass.worker.Share(pass.rows, add, PhaseScope::kRanks);
}

}  // namespace pinion
