// The cost of a layer's exchange between two ranks of one process: one term of one row, as in
// decoding.
//
//   phase/2_ranks        a phase that spans two ranks, with nothing in it: both are through it
//   exchange/2_ranks/B   the same, in which each rank writes its term of B bytes, and after which
//                        each adds both terms to its residual stream (a layer has two of these)
//
// The second contains the first, and the writing, which a product does anyhow. Both need two cores.
// `least_ns` is the mean of the fastest 500 in a row, which nothing else on the machine disturbed.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/clock.h"
#include "engine/decoder/rank_exchange.h"
#include "engine/host/binding.h"
#include "engine/host/team.h"
#include "kernels/isa.h"

namespace pinion {
namespace {

// Each phase of all ranks that writes a buffer lies between two that write another: as in a layer.
constexpr TermKind kInTurn[] = {TermKind::kAttention, TermKind::kMlp};
// A parallel region for so many: a few nanoseconds for each.
constexpr int kRounds = 500;

// Runs body in all threads of the ranks, which goes kRounds times through what is measured.
template <typename Body>
void RunRounds(benchmark::State& state, Ranks& ranks, const Body& body) {
  int64_t least_ns = INT64_MAX;
  while (state.KeepRunningBatch(kRounds)) {
    const int64_t begin_ns = NowNs();
    ranks.Run(body);
    least_ns = std::min(least_ns, NowNs() - begin_ns);
  }
  state.counters["least_ns"] = static_cast<double>(least_ns) / kRounds;
}

Result<std::unique_ptr<Ranks>> TwoRanks() {
  PINION_ASSIGN(const Machine machine, ThisMachine());
  PINION_ASSIGN(const Budget budget, ComputeBudget(machine));
  BindingRequest request;
  request.ranks = 2;
  PINION_ASSIGN(const Plan plan, MakePlan(machine, budget, request));
  Plan two = plan;
  for (RankPlan& rank : two.ranks) {
    rank.cpus.resize(1);
    rank.threads = 1;
    rank.groups.clear();
  }
  return Ranks::Start(two);
}

// A model of one layer, of which there is nothing but the ranks' terms of one row.
struct Layer {
  DecoderSpec spec;
  std::vector<RankModel> ranks = std::vector<RankModel>(2);
  Pages storage[2];

  Status Allocate(size_t hidden) {
    spec.hidden = static_cast<int>(hidden);
    spec.layers = 1, spec.heads = 2, spec.kv_heads = 2, spec.head_dim = 64;
    spec.intermediate = spec.vocabulary = 128;
    spec.layer_specs.resize(1);
    const size_t stride = HiddenStride(spec);
    for (size_t rank = 0; rank < 2; ++rank) {
      RankWeights& weights = ranks[rank].weights;
      weights.layers.resize(1);
      weights.layers[0].o.outputs = weights.layers[0].down.outputs = hidden;
      PINION_ASSIGN(storage[rank], Pages::Allocate(3 * stride * sizeof(float), {}));
      auto* floats = reinterpret_cast<float*>(storage[rank].data());
      Workspace& workspace = ranks[rank].workspace;
      workspace.attention_partial = floats;
      workspace.mlp_partial = floats + stride;
      workspace.residual = floats + 2 * stride;
    }
    return {};
  }
};

void BM_Phase(benchmark::State& state) {
  auto ranks = TwoRanks();
  if (!ranks) return state.SkipWithError(ranks.error().message.c_str());
  RunRounds(state, **ranks, [](const Worker& worker) {
    const auto nothing = [](size_t, size_t) {};
    for (int round = 0; round < kRounds; ++round) worker.Share(1, 1, nothing, PhaseScope::kRanks);
  });
}

void BM_Exchange(benchmark::State& state) {
  const size_t hidden = static_cast<size_t>(state.range(0)) / sizeof(float);
  auto ranks = TwoRanks();
  if (!ranks) return state.SkipWithError(ranks.error().message.c_str());
  Layer layer;
  const Status allocated = layer.Allocate(hidden);
  if (!allocated) return state.SkipWithError(allocated.error().message.c_str());
  const auto exchange = RankExchange::Create(layer.spec, {}, layer.ranks);
  if (!exchange) return state.SkipWithError(exchange.error().message.c_str());
  const kernels::Table& table = kernels::TableFor(kernels::UsableIsas().back());
  RunRounds(state, **ranks, [&](const Worker& worker) {
    const auto rank = static_cast<size_t>(worker.rank);
    Workspace& own = layer.ranks[rank].workspace;
    std::fill_n(own.residual, hidden, 0.0f);
    for (int round = 0; round < kRounds; ++round) {
      const TermKind kind = kInTurn[round % 2];
      float* term = kind == TermKind::kMlp ? own.mlp_partial : own.attention_partial;
      worker.Share(
          1, 1, [&](size_t, size_t) { std::fill_n(term, hidden, static_cast<float>(rank + 1)); },
          PhaseScope::kRanks);
      exchange->AddShares(table, kind, 0, 0, own.residual);
    }
  });
  for (const RankModel& rank : layer.ranks)
    if (rank.workspace.residual[0] != 3 * kRounds ||
        rank.workspace.residual[hidden - 1] != 3 * kRounds)
      state.SkipWithError("the ranks' terms do not add up");
}

BENCHMARK(BM_Phase)->Name("phase/2_ranks")->UseRealTime();
BENCHMARK(BM_Exchange)->Name("exchange/2_ranks")->Arg(8 << 10)->Arg(32 << 10)->UseRealTime();

}  // namespace
}  // namespace pinion
