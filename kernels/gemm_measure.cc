#include <emmintrin.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "kernels/gemm_plan.h"

namespace pinion::kernels {
namespace {

// Where kernels may take over from each other: streaming, then arithmetic.
constexpr size_t kRows[] = {1, 2, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256};
// A deep and narrow slice: its weights (512 KiB of bfloat16) fit L2, as those between two reads do.
constexpr size_t kK = 2048, kBlocks = 2;
constexpr int kSamples = 5;
// Who is so many times slower than the fastest after two samples gets no further ones.
constexpr double kHopeless = 1.5;
// How much faster a candidate must be than those before it. Another kernel rounds otherwise, and a
// process that chose it by chance would not repeat what the last one said.
constexpr double kMargin = 1.08, kOtherKernelMargin = 1.15;

// CPU time: whatever else runs here does not count.
double ThreadSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

class Buffer {
 public:
  // Filled with small numbers of any type, so that no product is subnormal.
  explicit Buffer(size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes))) {
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0x3c, bytes);
  }
  std::byte* data() { return data_.get(); }
  void Flush() {  // out of all caches
    for (size_t i = 0; i < bytes_; i += 64) _mm_clflush(data_.get() + i);
    _mm_mfence();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

class Stopwatch {
 public:
  Stopwatch(Isa isa, Dtype weights)
      : isa_(isa),
        weights_(weights),
        w_(kBlocks * PackedBlockBytes(weights, kK)),
        x_(kRows[std::size(kRows) - 1] * kK * SizeOf(ActivationType(weights))),
        y_(kRows[std::size(kRows) - 1] * kBlocks * kBlockN * sizeof(float)) {}

  GemmRules Measure() {
    const std::vector<GemmKernel> kernels = GemmCandidates(isa_, weights_);
    GemmRules rules = {{1, kernels.front()}};
    if (kernels.size() == 1) return rules;
    for (const size_t rows : kRows) {
      const GemmKernel& best = Best(kernels, rows);
      if (rows == 1) {
        rules.front().kernel = best;
      } else if (best != rules.back().kernel) {
        rules.push_back({rows, best});
      }
    }
    return rules;
  }

 private:
  const GemmKernel& Best(const std::vector<GemmKernel>& kernels, size_t rows) {
    std::vector<double> seconds(kernels.size(), 1e9);
    for (int sample = 0; sample < kSamples; ++sample) {
      const double fastest = *std::min_element(seconds.begin(), seconds.end());
      for (size_t i = 0; i < kernels.size(); ++i) {
        if (sample >= 2 && seconds[i] > kHopeless * fastest) continue;
        if (sample == 0) Time(kernels[i], rows);  // pages, primitives
        seconds[i] = std::min(seconds[i], Time(kernels[i], rows));
      }
    }
    size_t best = 0;
    for (size_t i = 1; i < kernels.size(); ++i) {
      const bool same =
          kernels[i].isa == kernels[best].isa && kernels[i].is_onednn == kernels[best].is_onednn;
      if (seconds[i] * (same ? kMargin : kOtherKernelMargin) < seconds[best]) best = i;
    }
    return kernels[best];
  }

  double Time(const GemmKernel& kernel, size_t rows) {
    w_.Flush();
    const double start = ThreadSeconds();
    RunGemmKernel(kernel, weights_,
                  {.x = x_.data(),
                   .w = w_.data(),
                   .y = reinterpret_cast<float*>(y_.data()),
                   .rows = rows,
                   .k_padded = kK,
                   .blocks = kBlocks,
                   .ldy = kBlocks * kBlockN});
    return ThreadSeconds() - start;
  }

  Isa isa_;
  Dtype weights_;
  Buffer w_, x_, y_;
};

}  // namespace

GemmRules MeasureGemmRules(Isa isa, Dtype weights) {
  static std::mutex mutex;
  static std::map<std::pair<Isa, Dtype>, GemmRules> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find({isa, weights});
  if (found != known.end()) return found->second;
  return known[{isa, weights}] = Stopwatch(isa, weights).Measure();
}

}  // namespace pinion::kernels
