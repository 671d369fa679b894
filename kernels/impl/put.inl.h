#pragma once

// Storing a result of the plain functions.

#include "kernels/impl/half.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

// Element i of dst, rounded to its type: float32 or bfloat16.
void Put(void* dst, Dtype dst_type, size_t i, float value) {
  if (dst_type == Dtype::kBf16) {
    static_cast<Bf16*>(dst)[i] = NarrowBf16(value);
  } else {
    static_cast<float*>(dst)[i] = value;
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
