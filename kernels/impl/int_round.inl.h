#pragma once

// Rounding of activations to int8 rows (IntTable::round). Include the ISA's integers first.

#include "kernels/impl/int_rows.inl.h"

namespace pinion::kernels::impl {
namespace {

template <typename T>
Vec LoadActivations(const T* x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return Load(x);
  } else {
    return WidenBf16(x);
  }
}

template <typename T>
float LargestMagnitude(const T* x, size_t n) {
  const size_t whole = n - n % kLanes;
  Vec largest = Set(0);
  for (size_t i = 0; i < whole; i += kLanes)
    largest = Max(Magnitude(LoadActivations(x + i)), largest);
  float result = MaxLane(largest);
  for (size_t i = whole; i < n; ++i) {
    const float magnitude = __builtin_fabsf(Widen(x[i]));
    if (magnitude > result) result = magnitude;
  }
  return result;
}

// How many magnitudes are above the limit; counted no further than the first above `enough`.
template <typename T>
size_t CountOutliers(const T* x, size_t n, float limit, size_t enough) {
  const size_t whole = n - n % kLanes;
  size_t count = 0;
  for (size_t i = 0; i < whole && count <= enough; i += kLanes)
    count += CountAbove(LoadActivations(x + i), limit);
  for (size_t i = whole; i < n; ++i) count += __builtin_fabsf(Widen(x[i])) > limit ? 1 : 0;
  return count;
}

int32_t RoundOne(float quotient, int32_t zero_point) {
  const float rounded = __builtin_nearbyintf(quotient) + static_cast<float>(zero_point);
  return static_cast<int32_t>(!(rounded > -128) ? -128
                              : rounded > 127   ? 127
                                                : rounded);  // NaN: -128
}

// Whether all values are finite: an infinity less itself is NaN. Others become ordinary codes.
template <typename T>
bool RoundValues(const T* x, size_t n, float scale, int32_t zero_point, int8_t* dst) {
  const size_t whole = n - n % kLanes;
  const Vec divisor = Set(scale), shift = Set(static_cast<float>(zero_point));
  unsigned nan = 0;
  for (size_t i = 0; i < whole; i += kLanes) {
    const Vec quotient = LoadActivations(x + i) / divisor;
    nan |= NanLanes(quotient - quotient, quotient);
    const Vec rounded = RoundToInteger(quotient) + shift;
    StoreBytes(dst + i, Max(Min(rounded, Set(127)), Set(-128)));
  }
  for (size_t i = whole; i < n; ++i) {
    const float quotient = Widen(x[i]) / scale;
    nan |= quotient - quotient != 0 ? 1 : 0;
    dst[i] = static_cast<int8_t>(RoundOne(quotient, zero_point));
  }
  return nan == 0;
}

// Columns gathered at a time.
constexpr size_t kGathered = 256;

// Calls body(values, first, count) for runs of columns that together are all columns.
template <typename T, typename Body>
void ForRuns(const RoundArgs& args, size_t k, Body body) {
  const auto* x = static_cast<const T*>(args.x);
  if (args.order == nullptr) return body(x, 0, k);
  T gathered[kGathered];
  for (size_t first = 0; first < k; first += kGathered) {
    const size_t count = k - first < kGathered ? k - first : kGathered;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t column = args.order[first + i];
      gathered[i] = column == kNoColumn ? T{} : x[column];
    }
    body(gathered, first, count);
  }
}

// The largest magnitude that is rounded; `largest`: of all.
template <typename T>
float RoundedRange(const IntLayout& layout, const RoundArgs& args, float largest) {
  float range = largest;
  if (layout.outliers == 0 || largest < kLeastOutlier) return range;
  for (int steps = kFewestOutlierSteps; steps <= kMostOutlierSteps; ++steps) {
    const float limit = largest / static_cast<float>(1 << steps);
    size_t above = 0;
    ForRuns<T>(args, layout.k, [&layout, &above, limit](const T* values, size_t, size_t count) {
      above += CountOutliers(values, count, limit, layout.outliers);
    });
    if (above > layout.outliers) break;
    range = limit;
  }
  return range;
}

void PutCount(const IntLayout& layout, std::byte* row, uint32_t count) {
  __builtin_memcpy(row + layout.outliers_at(), &count, sizeof(count));
}

// Moves the values above `range` out of the rounded row.
template <typename T>
void PutOutliersApart(const IntLayout& layout, const RoundArgs& args, float range) {
  std::byte* next = args.dst + layout.outliers_at() + sizeof(uint32_t);
  uint32_t moved = 0;
  ForRuns<T>(args, layout.k, [&](const T* values, size_t first, size_t count) {
    for (size_t i = 0; i < count; i += kLanes) {
      const size_t end = count - i < kLanes ? count : i + kLanes;
      if (CountOutliers(values + i, end - i, range, kLanes) == 0) continue;
      for (size_t j = i; j < end; ++j) {
        if (!(__builtin_fabsf(Widen(values[j])) > range)) continue;
        const Outlier outlier{static_cast<uint32_t>(first + j), Widen(values[j])};
        __builtin_memcpy(next + moved++ * sizeof(outlier), &outlier, sizeof(outlier));
        args.dst[first + j] = std::byte{0};
      }
    }
  });
  PutCount(layout, args.dst, moved);
}

template <typename T>
void RoundTyped(const IntLayout& layout, const RoundArgs& args) {
  auto* dst = reinterpret_cast<int8_t*>(args.dst);
  RowTail tail{args.rounding.scale, args.rounding.zero_point};
  float largest = 0, range = 0;
  if (tail.scale == 0) {
    ForRuns<T>(args, layout.k, [&largest](const T* values, size_t, size_t count) {
      const float magnitude = LargestMagnitude(values, count);
      if (magnitude > largest) largest = magnitude;
    });
    range = RoundedRange<T>(layout, args, largest);
    tail = {largest > 0 ? range / 127 : 1, 0};
  }
  bool finite = true;
  ForRuns<T>(args, layout.k, [dst, &tail, &finite](const T* values, size_t first, size_t count) {
    const bool all = RoundValues(values, count, tail.scale, tail.zero_point, dst + first);
    finite = finite && all;
  });
  if (!finite) tail.scale = __builtin_nanf("");
  if (layout.outliers > 0) {
    PutCount(layout, args.dst, 0);
    if (range < largest) PutOutliersApart<T>(layout, args, range);
  }
  __builtin_memset(dst + layout.k, 0, layout.columns() - layout.k);
  __builtin_memcpy(dst + layout.columns(), &tail, sizeof(tail));
  auto* sums = reinterpret_cast<int32_t*>(args.dst + layout.columns() + sizeof(tail));
  const size_t width = layout.whole_rows() ? layout.columns() : layout.group;
  for (size_t group = 0; group < layout.groups(); ++group) {
    int32_t sum = 0;
    for (size_t i = group * width; i < (group + 1) * width; ++i) sum += dst[i];
    sums[group] = sum;
  }
}

void Round(const IntLayout& layout, const RoundArgs& args) {
  if (args.x_type == Dtype::kF32) {
    RoundTyped<float>(layout, args);
  } else {
    RoundTyped<Bf16>(layout, args);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
