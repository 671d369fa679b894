// One thread's share of the linear layers of two models on two threads, by M (rows): its half of
// the outputs. Each iteration takes the next slice of a pool that no cache holds, as the layers of
// a model do. B/s counts the weights, FLOP/s the multiplications, of_roof the part of what was
// possible: the longer of weights over bandwidth and multiplications over peak, both measured right
// after the loop on the same threads, over the time it took.

#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>

#include "kernels/bench.h"
#include "kernels/gemm_plan.h"
#include "kernels/probe.h"

namespace pinion::kernels::bench {
namespace {

struct Layer {
  const char* name;
  size_t k, n;  // n: of one of two threads
};
constexpr Layer kLayers[] = {
    {"1b.qkv", 2048, 1536},      {"1b.o", 2048, 1024},     {"1b.gate_up", 2048, 8192},
    {"1b.down", 8192, 1024},     {"0.5b.qkv", 896, 576},   {"0.5b.o", 896, 448},
    {"0.5b.gate_up", 896, 4864}, {"0.5b.down", 4864, 448},
};
constexpr size_t kMaxRows = 512, kMaxWidth = 8192;

// This thread's CPU time: what else runs on a shared machine delays kernel and probe alike, but
// never for the same part.
double Now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Work per second, the best of three samples of 4 ms. bite() returns how much it did.
template <typename Bite>
double BestRate(Bite bite) {
  double best = 0;
  for (int sample = 0; sample < 3; ++sample) {
    double done = 0, seconds = 0;
    const double start = Now();
    do {
      done += static_cast<double>(bite());
      seconds = Now() - start;
    } while (seconds < 0.004);
    best = std::max(best, done / seconds);
  }
  return best;
}

// What bounds a product on this thread, whatever the others do meanwhile.
struct Roof {
  double read_bytes_per_s = 0, flops_per_s = 0;

  Roof(Isa isa, Dtype weights, const std::byte* memory, size_t bytes) {
    const Probes& probes = ProbesFor(isa);
    size_t at = 0;
    read_bytes_per_s = BestRate([&] {
      constexpr size_t kBite = size_t{1} << 20;
      at = at + 2 * kBite > bytes ? 0 : at + kBite;
      probes.stream(memory + at, kBite);
      return kBite;
    });
    flops_per_s = BestRate([&] { return probes.multiply_f32(2000); });
    if (weights != Dtype::kBf16 || probes.multiply_bf16 == nullptr) return;
    const double bf16 = BestRate([&] { return probes.multiply_bf16(2000); });
    flops_per_s = std::max(flops_per_s, bf16);
  }
  double Seconds(double bytes, double flops) const {
    return std::max(bytes / read_bytes_per_s, flops / flops_per_s);
  }
};

struct Free {
  void operator()(float* p) const { std::free(p); }
};

float* Filled(size_t count) {
  auto* fresh = static_cast<float*>(std::aligned_alloc(64, count * sizeof(float)));
  std::memset(static_cast<void*>(fresh), 0x3c, count * sizeof(float));
  return fresh;
}

// isa: whose peak is the roof.
template <typename Run>
void RunGemm(benchmark::State& state, const Layer& layer, Isa isa, Dtype weights, Run run) {
  thread_local const std::unique_ptr<float, Free> x(Filled(kMaxRows * kMaxWidth));
  thread_local const std::unique_ptr<float, Free> y(Filled(kMaxRows * kMaxWidth));
  const auto rows = static_cast<size_t>(state.range(0));
  const size_t blocks = layer.n / kBlockN, bytes = blocks * PackedBlockBytes(weights, layer.k);
  const size_t pool_bytes = kPoolBytes / static_cast<size_t>(state.threads());
  const std::byte* pool = Pool() + static_cast<size_t>(state.thread_index()) * pool_bytes;
  size_t at = 0;
  const double start = Now();
  double begin = start;
  for (auto _ : state) {
    if (begin == start) begin = Now();  // the threads have waited for each other
    run(GemmArgs{x.get(), pool + at, y.get(), rows, layer.k, blocks, layer.n});
    at = at + 2 * bytes > pool_bytes ? 0 : at + bytes;
  }
  const double seconds = (Now() - begin) / static_cast<double>(state.iterations());
  const double flops = 2.0 * static_cast<double>(rows * layer.n * layer.k);
  const Roof roof(isa, weights, pool, pool_bytes);
  state.counters["of_roof"] = benchmark::Counter(
      roof.Seconds(static_cast<double>(bytes), flops) / seconds, benchmark::Counter::kAvgThreads);
  ReportBytes(state, bytes);
  ReportFlops(state, flops);
  state.counters["CPU FLOP/s"] = benchmark::Counter(flops / seconds);
}

void BM_Kernel(benchmark::State& state, const Layer& layer, Dtype weights,
               const GemmKernel& kernel) {
  RunGemm(state, layer, kernel.isa, weights,
          [&](const GemmArgs& args) { RunGemmKernel(kernel, weights, args); });
}

// As an engine on this path does it.
void BM_Chosen(benchmark::State& state, const Layer& layer, Dtype weights, Isa isa) {
  const GemmRules rules = MeasureGemmRules(isa, weights);
  UseGemmRules(isa, weights, rules);
  state.SetLabel(Format(rules));
  RunGemm(state, layer, isa, weights,
          [&](const GemmArgs& args) { Gemm(TableFor(isa), weights, args); });
}

template <typename Run>
void Register(const std::string& name, Dtype weights, Run run) {
  for (const Layer& layer : kLayers) {
    auto* made = benchmark::RegisterBenchmark(
        ("gemm/" + name + "/" + Name(weights) + "/" + layer.name).c_str(),
        [run, &layer](benchmark::State& state) { run(state, layer); });
    for (int rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) made->Arg(rows);
    made->UseRealTime()->ThreadRange(1, 2);
  }
}

// Every kernel by its name; oneDNN's cap is the best path's, or ONEDNN_MAX_CPU_ISA's.
const bool registered = [] {
  for (Dtype weights : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    std::set<std::string> known;
    for (auto isa = UsableIsas().rbegin(); isa != UsableIsas().rend(); ++isa) {
      for (const GemmKernel& kernel : GemmCandidates(*isa, weights)) {
        if (!known.insert(Name(kernel)).second) continue;
        Register(Name(kernel), weights, [=](benchmark::State& state, const Layer& layer) {
          BM_Kernel(state, layer, weights, kernel);
        });
      }
      Register(std::string("chosen/") + Name(*isa), weights,
               [=, path = *isa](benchmark::State& state, const Layer& layer) {
                 BM_Chosen(state, layer, weights, path);
               });
    }
  }
  return true;
}();

}  // namespace
}  // namespace pinion::kernels::bench
