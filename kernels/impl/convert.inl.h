#pragma once

// Conversions between storage types, a vector at a time. NaN stays NaN; its payload may differ from
// that of half.inl.h.

#include "kernels/types.h"

namespace pinion::kernels::impl {
namespace {

Vec LoadAs(const float* p) { return Load(p); }
Vec LoadAs(const Bf16* p) { return WidenBf16(p); }
Vec LoadAs(const F16* p) { return WidenF16(p); }
void StoreAs(float* p, Vec v) { Store(p, v); }
void StoreAs(Bf16* p, Vec v) { StoreBf16(p, v); }
void StoreAs(F16* p, Vec v) { StoreF16(p, v); }

// Tensors in files may lie at any address: the typed pointers are never dereferenced, only passed
// to unaligned loads. The last, partial vector goes through buffers, so nothing outside of src and
// dst is touched.
template <typename Dst, typename Src>
void ConvertAs(std::byte* dst, const std::byte* src, size_t n) {
  for (; n >= kLanes; n -= kLanes, dst += kLanes * sizeof(Dst), src += kLanes * sizeof(Src)) {
    StoreAs(reinterpret_cast<Dst*>(dst), LoadAs(reinterpret_cast<const Src*>(src)));
  }
  if (n == 0) return;
  Src last[kLanes] = {};
  Dst converted[kLanes];
  __builtin_memcpy(last, src, n * sizeof(Src));
  StoreAs(converted, LoadAs(last));
  __builtin_memcpy(dst, converted, n * sizeof(Dst));
}

template <typename Dst>
void ConvertTo(std::byte* dst, const std::byte* src, Dtype src_type, size_t n) {
  switch (src_type) {
    case Dtype::kF32:
      return ConvertAs<Dst, float>(dst, src, n);
    case Dtype::kBf16:
      return ConvertAs<Dst, Bf16>(dst, src, n);
    case Dtype::kF16:
      return ConvertAs<Dst, F16>(dst, src, n);
  }
}

void Convert(std::byte* dst, Dtype dst_type, const std::byte* src, Dtype src_type, size_t n) {
  switch (dst_type) {
    case Dtype::kF32:
      return ConvertTo<float>(dst, src, src_type, n);
    case Dtype::kBf16:
      return ConvertTo<Bf16>(dst, src, src_type, n);
    case Dtype::kF16:
      return ConvertTo<F16>(dst, src, src_type, n);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
