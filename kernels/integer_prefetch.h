#pragma once

// How integer products prefetch their weights, by the number of rows. It is measured because CPUs
// differ, like the choice of a kernel for floats (gemm_plan.h).

#include <array>
#include <string>
#include <vector>

#include "kernels/integer.h"

namespace pinion::kernels {

// From `from_rows` rows on, up to the next rule's.
struct PrefetchRule {
  size_t from_rows = 1;
  Prefetch prefetch = Prefetch::kNear;
  bool operator==(const PrefetchRule&) const = default;
};
using PrefetchRules = std::vector<PrefetchRule>;  // ascending; the first starts at 1 row

// Rules for each kind of packed weights: codes of 8 or 4 bits, whole rows or groups; e4m3.
class IntPrefetch {
 public:
  Prefetch For(const IntLayout& layout, size_t rows) const;
  void Set(const IntLayout& layout, PrefetchRules rules);
  // Empty if none were set.
  const PrefetchRules& Rules(const IntLayout& layout) const { return rules_[KindOf(layout)]; }
  // "near,far@6 (8 bits, whole rows); none (4 bits, groups)": the kinds whose rules were set.
  std::string Describe() const;

  static constexpr size_t kKinds = 5;
  static size_t KindOf(const IntLayout& layout);  // below kKinds, in the order above

 private:
  std::array<PrefetchRules, kKinds> rules_;
};

// Times every kind of prefetching at some numbers of rows, for the kinds of these layouts, on the
// calling thread. Takes some 8 ms per kind the first time; the result is kept for this process.
// Thread-safe.
IntPrefetch MeasureIntPrefetch(Isa isa, const std::vector<IntLayout>& layouts);

}  // namespace pinion::kernels
