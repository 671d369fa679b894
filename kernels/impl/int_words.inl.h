#pragma once

// Codes of 8 bits and int8 activations as they are stored, four columns in a lane; each ISA adds
// its own multiplication. Include the ISA's integers first.

#include "kernels/impl/gemm.inl.h"

namespace pinion::kernels::impl {
namespace {

struct WordsOfU8 {
  using X = int8_t;
  static constexpr size_t kStepK = 4, kSubs = 1, kBytes = 4;
  template <bool half>
  static Vec Load(const std::byte* w, size_t) {
    return LoadWords<half>(w);
  }
  static Vec Spread(const int8_t* x, size_t) { return SpreadWord(x); }
};

}  // namespace
}  // namespace pinion::kernels::impl
