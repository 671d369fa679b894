// The gated delta rule of one head over a prompt of 512 tokens, token by token and in chunks:
// FLOP/s counts what the recurrence needs (7 operations for each element of the state and token),
// so that both can be compared. of_roof is the share of the peak of float32 arithmetic;
// `state_from_memory` walks through many heads' states, one token each, as decode does, and there
// it is the share of the bandwidth with which states are read. Then the same of a state space model
// for a group of 16 heads with 128 rows of state, which share B and C: 5 operations for each
// element and token.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/bench_roof.h"

namespace pinion::kernels::bench {
namespace {

constexpr size_t kDeltaDim = 128, kPromptTokens = 512;
constexpr size_t kStateFloats = kDeltaDim * kDeltaDim;

// A head's prompt; a pool of states.
struct DeltaPrompt {
  std::vector<float> q = std::vector<float>(kPromptTokens * kDeltaDim, 0.01f), k = q, v = q;
  std::vector<float> out = q;
  std::vector<float> decay = std::vector<float>(kPromptTokens, 0.98f), beta = decay;
  std::vector<float> decays = std::vector<float>(kPromptTokens * kDeltaDim, 0.98f);
  alignas(64) float scratch[DeltaChunkFloats(kDeltaDim, true)];
};

void RunToken(const Table& table, DeltaPrompt& prompt, size_t token, float* state,
              bool by_channel = false) {
  const size_t at = token * kDeltaDim;
  table.delta_rule({.state = state,
                    .q = prompt.q.data() + at,
                    .k = prompt.k.data() + at,
                    .v = prompt.v.data() + at,
                    .key_dim = kDeltaDim,
                    .value_dim = kDeltaDim,
                    .decay = prompt.decay[token],
                    .beta = prompt.beta[token],
                    .out = prompt.out.data() + at,
                    .decays = by_channel ? prompt.decays.data() + at : nullptr});
}

// chunk: tokens a call; 0: one by one with the function of one token. by_channel: each channel of a
// key has a decay of its own.
void BM_DeltaPrompt(benchmark::State& state, Isa isa, bool by_channel) {
  const Table& table = TableFor(isa);
  const auto chunk = static_cast<size_t>(state.range(0));
  const auto prompt = std::make_unique<DeltaPrompt>();
  auto* cells = reinterpret_cast<float*>(Pool());
  const double start = Now();
  for (auto _ : state) {
    for (size_t token = 0; chunk == 0 && token < kPromptTokens; ++token)
      RunToken(table, *prompt, token, cells, by_channel);
    for (size_t token = 0; chunk > 0 && token < kPromptTokens; token += chunk)
      table.delta_chunk(
          {.state = cells,
           .q = prompt->q.data() + token * kDeltaDim,
           .k = prompt->k.data() + token * kDeltaDim,
           .v = prompt->v.data() + token * kDeltaDim,
           .v_stride = kDeltaDim,
           .tokens = std::min(chunk, kPromptTokens - token),
           .key_dim = kDeltaDim,
           .value_dim = kDeltaDim,
           .decay = prompt->decay.data() + token,
           .beta = prompt->beta.data() + token,
           .out = prompt->out.data() + token * kDeltaDim,
           .scratch = prompt->scratch,
           .decays = by_channel ? prompt->decays.data() + token * kDeltaDim : nullptr});
  }
  const double seconds = (Now() - start) / static_cast<double>(state.iterations());
  const double flops = 7.0 * kStateFloats * kPromptTokens;
  state.counters["of_roof"] = flops / PeakOf(isa, Dtype::kF32) / seconds;
  ReportFlops(state, flops);
}

void BM_DeltaDecode(benchmark::State& state, Isa isa) {
  const Table& table = TableFor(isa);
  const auto prompt = std::make_unique<DeltaPrompt>();
  auto* pool = reinterpret_cast<float*>(Pool());
  constexpr size_t kStates = kPoolBytes / sizeof(float) / kStateFloats;
  size_t next = 0;
  const double start = Now();
  for (auto _ : state) {
    RunToken(table, *prompt, 0, pool + next * kStateFloats);
    next = (next + 1) % kStates;
  }
  const double seconds = (Now() - start) / static_cast<double>(state.iterations());
  const double bytes = kStateFloats * sizeof(float);
  state.counters["of_roof"] = bytes / ReadRate(ProbesFor(isa), Pool(), kPoolBytes) / seconds;
  ReportBytes(state, kStateFloats * sizeof(float));
}

// A group's prompt, in rows as a projection has them: x of all heads, B, C.
struct StateSpacePrompt {
  static constexpr size_t kHeads = 16, kStateDim = 128;
  explicit StateSpacePrompt(size_t head_dim)
      : head_dim(head_dim), stride(kHeads * head_dim + 2 * kStateDim + 48) {
    rows.resize(kPromptTokens * stride, 0.01f);
    out.resize(kPromptTokens * head_dim);
  }
  const float* X(size_t token, size_t head) const {
    return rows.data() + token * stride + head * head_dim;
  }
  const float* B(size_t token) const { return X(token, kHeads); }
  const float* C(size_t token) const { return B(token) + kStateDim; }

  const size_t head_dim, stride;
  std::vector<float> rows, out;
  std::vector<float> decay = std::vector<float>(kPromptTokens, 0.98f), dt = decay;
  alignas(64) float scores[kPromptTokens * kStateChunk];
  alignas(64) float scratch[StateChunkFloats(kStateDim)];
};

void RunHead(const Table& table, StateSpacePrompt& prompt, size_t chunk, size_t head,
             float* state) {
  for (size_t token = 0; token < kPromptTokens; token += chunk)
    table.state_space_chunk({.state = state,
                             .x = prompt.X(token, head),
                             .b = prompt.B(token),
                             .c = prompt.C(token),
                             .stride = prompt.stride,
                             .tokens = chunk,
                             .state_dim = StateSpacePrompt::kStateDim,
                             .head_dim = prompt.head_dim,
                             .scores = prompt.scores + token * kStateChunk,
                             .scores_stride = kStateChunk,
                             .decay = prompt.decay.data() + token,
                             .dt = prompt.dt.data() + token,
                             .skip = 1,
                             .out = prompt.out.data() + token * prompt.head_dim,
                             .out_stride = prompt.head_dim,
                             .scratch = prompt.scratch});
}

void RunHeadByToken(const Table& table, StateSpacePrompt& prompt, size_t head, float* state) {
  table.state_space({.state = state,
                     .x = prompt.X(0, head),
                     .b = prompt.B(0),
                     .c = prompt.C(0),
                     .stride = prompt.stride,
                     .tokens = kPromptTokens,
                     .state_dim = StateSpacePrompt::kStateDim,
                     .head_dim = prompt.head_dim,
                     .decay = prompt.decay.data(),
                     .dt = prompt.dt.data(),
                     .skip = 1,
                     .out = prompt.out.data(),
                     .out_stride = prompt.head_dim});
}

void Score(const Table& table, StateSpacePrompt& prompt, size_t chunk) {
  for (size_t token = 0; token < kPromptTokens; token += chunk)
    table.state_space_scores({.b = prompt.B(token),
                              .c = prompt.C(token),
                              .stride = prompt.stride,
                              .tokens = chunk,
                              .state_dim = StateSpacePrompt::kStateDim,
                              .scores = prompt.scores + token * kStateChunk,
                              .scores_stride = kStateChunk,
                              .scratch = prompt.scratch});
}

// head_dim; chunk: tokens a call, 0: all of them with the function that takes them one by one.
void BM_StateSpacePrompt(benchmark::State& state, Isa isa) {
  const Table& table = TableFor(isa);
  const auto head_dim = static_cast<size_t>(state.range(0));
  const auto chunk = static_cast<size_t>(state.range(1));
  const auto prompt = std::make_unique<StateSpacePrompt>(head_dim);
  const size_t cells = StateSpacePrompt::kStateDim * head_dim;
  auto* states = reinterpret_cast<float*>(Pool());
  const double start = Now();
  for (auto _ : state) {
    if (chunk > 0) Score(table, *prompt, chunk);
    for (size_t head = 0; head < StateSpacePrompt::kHeads; ++head) {
      if (chunk > 0)
        RunHead(table, *prompt, chunk, head, states + head * cells);
      else
        RunHeadByToken(table, *prompt, head, states + head * cells);
    }
  }
  const double seconds = (Now() - start) / static_cast<double>(state.iterations());
  const double flops = 5.0 * static_cast<double>(StateSpacePrompt::kHeads * cells * kPromptTokens);
  state.counters["of_roof"] = flops / PeakOf(isa, Dtype::kF32) / seconds;
  ReportFlops(state, flops);
}

const bool registered = [] {
  for (Isa isa : UsableIsas()) {
    const std::string name = std::string("delta/") + Name(isa) + "/float32/128x128";
    for (const bool by_channel : {false, true}) {
      const std::string prompt = name + (by_channel ? "/prompt_by_channel" : "/prompt");
      auto* row = benchmark::RegisterBenchmark(prompt.c_str(), BM_DeltaPrompt, isa, by_channel);
      for (int chunk : {0, 4, 8, 16, 32, 64}) row->Arg(chunk);
    }
    benchmark::RegisterBenchmark((name + "/state_from_memory").c_str(), BM_DeltaDecode, isa);
    const std::string scan = std::string("state_space/") + Name(isa) + "/float32/16x128/prompt";
    auto* heads = benchmark::RegisterBenchmark(scan.c_str(), BM_StateSpacePrompt, isa);
    heads->ArgsProduct({{32, 64, 80, 128}, {0, 4, 8, 16, 32, 64}});
  }
  return true;
}();

}  // namespace
}  // namespace pinion::kernels::bench
