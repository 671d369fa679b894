#pragma once

#include <cstddef>
#include <cstdint>

namespace pinion {

// Twice the values of e2m1 (OCP Microscaling Formats 1.0, sec. 5.3.3), by their codes.
inline constexpr int8_t kDoubledE2m1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// Two codes a byte, the low one first, as twice their values: codes [2 * bytes].
inline void UnpackE2m1(const std::byte* src, size_t bytes, int8_t* codes) {
  for (size_t i = 0; i < bytes; ++i) {
    const auto both = std::to_integer<unsigned>(src[i]);
    codes[2 * i] = kDoubledE2m1[both & 15];
    codes[2 * i + 1] = kDoubledE2m1[both >> 4];
  }
}

}  // namespace pinion
