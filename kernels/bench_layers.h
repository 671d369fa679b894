#pragma once

// The linear layers of two models on two threads, by the number of rows: each thread has half of
// the outputs. Each iteration takes the next slice of a pool larger than any cache, as the layers
// of a model do. B/s counts the weights, FLOP/s the multiplications. of_roof is the share of the
// limit: the longer of weights over bandwidth and multiplications over peak, both measured right
// after the loop on the same threads, divided by the time taken.

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "kernels/bench_roof.h"

namespace pinion::kernels::bench {

struct Layer {
  const char* name;
  size_t k, n;  // n: the outputs of one of two threads
};
inline constexpr Layer kLayers[] = {
    {"1b.qkv", 2048, 1536},      {"1b.o", 2048, 1024},     {"1b.gate_up", 2048, 8192},
    {"1b.down", 8192, 1024},     {"0.5b.qkv", 896, 576},   {"0.5b.o", 896, 448},
    {"0.5b.gate_up", 896, 4864}, {"0.5b.down", 4864, 448},
};
inline constexpr size_t kMaxRows = 512, kMaxWidth = 8192;

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Scratch = std::unique_ptr<std::byte, Free>;

// Memory of this thread, one buffer per kPurpose, aligned to 64 bytes and filled like the pool.
template <int kPurpose>
const Scratch& ScratchOf(size_t bytes) {
  thread_local const Scratch scratch = [bytes] {
    auto* fresh = static_cast<std::byte*>(std::aligned_alloc(64, bytes));
    std::memset(fresh, 0x3c, bytes);
    return Scratch(fresh);
  }();
  return scratch;
}

// Runs multiply(weights) over slices of `bytes` bytes of the pool. peak() is called afterwards; it
// returns this thread's peak in operations per second.
template <typename Multiply, typename Peak>
void RunLayer(benchmark::State& state, const Layer& layer, size_t bytes, Multiply multiply,
              Peak peak, const Probes& probes) {
  const size_t pool_bytes = kPoolBytes / static_cast<size_t>(state.threads());
  const std::byte* pool = Pool() + static_cast<size_t>(state.thread_index()) * pool_bytes;
  size_t at = 0;
  const double start = Now();
  double begin = start;
  for (auto _ : state) {
    if (begin == start) begin = Now();  // the loop's start is a barrier of all threads
    multiply(pool + at);
    at = at + 2 * bytes > pool_bytes ? 0 : at + bytes;
  }
  const double seconds = (Now() - begin) / static_cast<double>(state.iterations());
  const double flops = 2.0 * static_cast<double>(state.range(0)) * static_cast<double>(layer.n) *
                       static_cast<double>(layer.k);
  const double roof =
      std::max(static_cast<double>(bytes) / ReadRate(probes, pool, pool_bytes), flops / peak());
  state.counters["of_roof"] = benchmark::Counter(roof / seconds, benchmark::Counter::kAvgThreads);
  ReportBytes(state, bytes);
  ReportFlops(state, flops);
  state.counters["CPU FLOP/s"] = benchmark::Counter(flops / seconds);
}

// <name>/<layer>/<rows>, on one thread and on two. run(state, layer).
template <typename Run>
void RegisterLayers(const std::string& name, Run run) {
  for (const Layer& layer : kLayers) {
    auto* made =
        benchmark::RegisterBenchmark((name + "/" + layer.name).c_str(),
                                     [run, &layer](benchmark::State& state) { run(state, layer); });
    for (int rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) made->Arg(rows);
    made->UseRealTime()->ThreadRange(1, 2);
  }
}

}  // namespace pinion::kernels::bench
