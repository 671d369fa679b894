#include <map>
#include <mutex>

#include "kernels/gemm_plan.h"
#include "kernels/impl/stopwatch.h"

namespace pinion::kernels {
namespace {

// Numbers of rows at which the fastest kernel may change: few stream weights, many are bound by
// arithmetic.
constexpr size_t kRows[] = {1, 2, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256};
constexpr size_t kMostRows = kRows[std::size(kRows) - 1];
// With more rows arithmetic takes so long that the kind of prefetching does not matter.
constexpr size_t kMostStreamedRows = 32;
// A slice of a matrix, flushed before every sample: its weights (512 KiB of bfloat16) fit L2, so
// what a kernel prefetches is not evicted before it is used. Few rows read a deep and narrow one;
// many get a wide one, as kernels of many rows pack their rows once for four blocks and more.
struct Slice {
  size_t k, blocks;
};
constexpr Slice kFewRows{2048, 2}, kManyRows{1024, 4};
// Buffers that are large enough for many rows hold few rows as well.
static_assert(kFewRows.k * kFewRows.blocks == kManyRows.k * kManyRows.blocks);
static_assert(kMostStreamedRows * (kFewRows.k + kSpreadGap) <=
              kMostRows * (kManyRows.k + kSpreadGap));
static_assert(kMostStreamedRows * kFewRows.blocks <= kMostRows * kManyRows.blocks);
// Another kernel rounds differently. If noise decided the choice, the same prompt could get
// different tokens after a restart, so a kernel with other rounding needs a clear lead.
constexpr double kOtherKernelMargin = 1.15;

class Stopwatch {
 public:
  Stopwatch(Isa isa, Dtype weights)
      : isa_(isa),
        weights_(weights),
        kernels_(GemmCandidates(isa, weights)),
        w_(kManyRows.blocks * PackedBlockBytes(weights, kManyRows.k)),
        x_(kMostRows * (kManyRows.k + kSpreadGap) * SizeOf(ActivationType(weights))),
        y_(kMostRows * kManyRows.blocks * kBlockN * sizeof(float)) {}

  GemmRules Measure() {
    GemmRules rules = {{1, kernels_.front()}};
    if (kernels_.size() == 1) return rules;
    for (const size_t rows : kRows) {
      const GemmKernel& best = Best(rows);
      if (rows == 1) {
        rules.front().kernel = best;
      } else if (best != rules.back().kernel) {
        rules.push_back({rows, best});
      }
    }
    return rules;
  }

 private:
  void Run(const GemmKernel& kernel, GemmArgs args) const {
    args.x_stride = KernelStride(TableFor(isa_), kernel, weights_, args.rows, args.k_padded);
    RunGemmKernel(kernel, weights_, args);
  }

  const GemmKernel& Best(size_t rows) {
    const Slice slice = rows <= kMostStreamedRows ? kFewRows : kManyRows;
    const GemmArgs args{.x = x_.data(),
                        .w = w_.data(),
                        .y = reinterpret_cast<float*>(y_.data()),
                        .rows = rows,
                        .k_padded = slice.k,
                        .blocks = slice.blocks,
                        .ldy = slice.blocks * kBlockN};
    std::vector<const GemmKernel*> ways;
    for (const GemmKernel& kernel : kernels_)
      if (rows <= kMostStreamedRows || kernel.prefetch == Prefetch::kNear) ways.push_back(&kernel);
    const auto margin = [&](size_t i, size_t best) {
      const bool same =
          ways[i]->isa == ways[best]->isa && ways[i]->is_onednn == ways[best]->is_onednn;
      return same ? impl::kSameBitsMargin : kOtherKernelMargin;
    };
    return *ways[impl::FastestOf(
        ways.size(), [&](size_t i) { Run(*ways[i], args); }, w_, margin)];
  }

  Isa isa_;
  Dtype weights_;
  std::vector<GemmKernel> kernels_;
  impl::TimedBuffer w_, x_, y_;
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
