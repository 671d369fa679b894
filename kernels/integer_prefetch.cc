#include "kernels/integer_prefetch.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "kernels/e4m3.h"
#include "kernels/impl/stopwatch.h"

namespace pinion::kernels {
namespace {

// With more rows arithmetic takes so long that prefetching does not matter.
constexpr size_t kRows[] = {1, 2, 4, 6, 8, 12, 16, 24, 32};
constexpr size_t kMostRows = kRows[std::size(kRows) - 1];
// As in gemm_measure.cc, a slice that fits L2.
constexpr size_t kK = 2048, kBlocks = 4;
constexpr IntLayout kSlices[IntPrefetch::kKinds] = {
    {8, kK, kK, -128, false},
    {8, kK, 32, -128, false},
    {4, kK, kK, -8, false},
    {4, kK, 128, -8, true},
    {8, kK, 128, 0, false, ScaleType::kF16, 0, true}};

class Stopwatch {
 public:
  Stopwatch(Isa isa, const IntLayout& layout)
      : isa_(isa),
        layout_(layout),
        w_(kBlocks * layout.block_bytes()),
        x_(kMostRows * std::max(layout.row_bytes(), kK * sizeof(Bf16))),
        y_(kMostRows * kBlocks * kBlockN * sizeof(float)) {
    // Zeros, because the scales and sums behind a row's codes must agree with them.
    std::memset(x_.data(), 0, kMostRows * layout.row_bytes());
  }

  PrefetchRules Measure() {
    PrefetchRules rules;
    for (const size_t rows : kRows) {
      const Prefetch best = Best(rows);
      if (rules.empty() || best != rules.back().prefetch) rules.push_back({rows, best});
    }
    return rules;
  }

 private:
  Prefetch Best(size_t rows) {
    auto* y = reinterpret_cast<float*>(y_.data());
    constexpr size_t kLdy = kBlocks * kBlockN;
    const auto run = [&](size_t i) {
      if (layout_.e4m3)
        E4m3TableFor(isa_).gemm(
            layout_, {x_.data(), Dtype::kBf16, w_.data(), y, rows, kBlocks, kLdy, kPrefetches[i]});
      else
        IntTableFor(isa_).gemm(layout_,
                               {x_.data(), w_.data(), y, rows, kBlocks, kLdy, kPrefetches[i]});
    };
    return kPrefetches[impl::FastestOf(std::size(kPrefetches), run, w_,
                                       [](size_t, size_t) { return impl::kSameBitsMargin; })];
  }

  const Isa isa_;
  const IntLayout& layout_;
  impl::TimedBuffer w_, x_, y_;
};

// Scalar kernels do not prefetch, and to time them would take seconds.
PrefetchRules MeasuredRules(Isa isa, const IntLayout& slice) {
  if (isa == Isa::kScalar) return {{1, Prefetch::kNear}};
  return Stopwatch(isa, slice).Measure();
}

std::string Format(const PrefetchRules& rules) {
  constexpr const char* kNames[] = {"near", "far", "none", "both"};  // by Prefetch
  std::string text;
  for (const PrefetchRule& rule : rules) {
    if (!text.empty()) text += ",";
    text += kNames[static_cast<int>(rule.prefetch)];
    if (rule.from_rows > 1) text.append("@").append(std::to_string(rule.from_rows));
  }
  return text;
}

std::string KindName(const IntLayout& layout) {
  if (layout.e4m3) return "8-bit floats";
  return std::string(layout.bits == 8 ? "8 bits, " : "4 bits, ") +
         (layout.whole_rows() ? "whole rows" : "groups");
}

}  // namespace

size_t IntPrefetch::KindOf(const IntLayout& layout) {
  if (layout.e4m3) return 4;
  return (layout.bits == 8 ? 0u : 2u) + (layout.whole_rows() ? 0u : 1u);
}

Prefetch IntPrefetch::For(const IntLayout& layout, size_t rows) const {
  Prefetch prefetch = Prefetch::kNear;
  for (const PrefetchRule& rule : rules_[KindOf(layout)])
    if (rule.from_rows <= rows) prefetch = rule.prefetch;
  return prefetch;
}

void IntPrefetch::Set(const IntLayout& layout, PrefetchRules rules) {
  rules_[KindOf(layout)] = std::move(rules);
}

std::string IntPrefetch::Describe() const {
  std::string text;
  for (const IntLayout& layout : kSlices) {
    const PrefetchRules& rules = rules_[KindOf(layout)];
    if (rules.empty()) continue;
    if (!text.empty()) text += "; ";
    text += Format(rules) + " (" + KindName(layout) + ")";
  }
  return text;
}

IntPrefetch MeasureIntPrefetch(Isa isa, const std::vector<IntLayout>& layouts) {
  static std::mutex mutex;
  static std::map<Isa, IntPrefetch> known;
  const std::lock_guard lock(mutex);
  IntPrefetch &measured = known[isa], asked;
  for (const IntLayout& layout : layouts) {
    const IntLayout& slice = kSlices[IntPrefetch::KindOf(layout)];
    if (measured.Rules(slice).empty()) measured.Set(slice, MeasuredRules(isa, slice));
    asked.Set(layout, measured.Rules(slice));
  }
  return asked;
}

}  // namespace pinion::kernels
