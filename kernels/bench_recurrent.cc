// The gated delta rule of one head over a prompt of 512 tokens, token by token and in chunks:
// FLOP/s counts what the recurrence needs (7 operations for each element of the state and token),
// so that both can be compared. of_roof is the share of the peak of float32 arithmetic;
// `state_from_memory` walks through many heads' states, one token each, as decode does, and there
// it is the share of the bandwidth with which states are read.

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
  alignas(64) float scratch[DeltaChunkFloats(kDeltaDim)];
};

void RunToken(const Table& table, DeltaPrompt& prompt, size_t token, float* state) {
  const size_t at = token * kDeltaDim;
  table.delta_rule({.state = state,
                    .q = prompt.q.data() + at,
                    .k = prompt.k.data() + at,
                    .v = prompt.v.data() + at,
                    .key_dim = kDeltaDim,
                    .value_dim = kDeltaDim,
                    .decay = prompt.decay[token],
                    .beta = prompt.beta[token],
                    .out = prompt.out.data() + at});
}

// chunk: tokens a call; 0: one by one with the function of one token.
void BM_DeltaPrompt(benchmark::State& state, Isa isa) {
  const Table& table = TableFor(isa);
  const auto chunk = static_cast<size_t>(state.range(0));
  const auto prompt = std::make_unique<DeltaPrompt>();
  auto* cells = reinterpret_cast<float*>(Pool());
  const double start = Now();
  for (auto _ : state) {
    for (size_t token = 0; chunk == 0 && token < kPromptTokens; ++token)
      RunToken(table, *prompt, token, cells);
    for (size_t token = 0; chunk > 0 && token < kPromptTokens; token += chunk)
      table.delta_chunk({.state = cells,
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
                         .scratch = prompt->scratch});
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

const bool registered = [] {
  for (Isa isa : UsableIsas()) {
    const std::string name = std::string("delta/") + Name(isa) + "/float32/128x128";
    auto* prompt = benchmark::RegisterBenchmark((name + "/prompt").c_str(), BM_DeltaPrompt, isa);
    for (int chunk : {0, 4, 8, 16, 32, 64}) prompt->Arg(chunk);
    benchmark::RegisterBenchmark((name + "/state_from_memory").c_str(), BM_DeltaDecode, isa);
  }
  return true;
}();

}  // namespace
}  // namespace pinion::kernels::bench
