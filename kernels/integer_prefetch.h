#pragma once

// How integer products come by their weights, by the number of rows: measured, as which kernel
// multiplies floats is (gemm_plan.h), because CPUs differ.

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
using PrefetchRules = std::vector<PrefetchRule>;  // ascending; the first is from 1 on

// Rules for each kind of packed weights: codes of 8 or 4 bits, whole rows or groups.
class IntPrefetch {
 public:
  Prefetch For(const IntLayout& layout, size_t rows) const;
  void Set(const IntLayout& layout, PrefetchRules rules);
  // Empty where none were set.
  const PrefetchRules& Rules(const IntLayout& layout) const { return rules_[KindOf(layout)]; }
  // "near,far@6 (8 bits, whole rows); none (4 bits, groups)": of kinds whose rules were set.
  std::string Describe() const;

  static constexpr size_t kKinds = 4;
  static size_t KindOf(const IntLayout& layout);  // below kKinds, in the order above

 private:
  std::array<PrefetchRules, kKinds> rules_;
};

// Times every way at some numbers of rows for the kinds of these layouts on the calling thread;
// takes some 8 ms a kind the first time, and remembers the result for this process. Thread-safe.
IntPrefetch MeasureIntPrefetch(Isa isa, const std::vector<IntLayout>& layouts);

}  // namespace pinion::kernels
