#pragma once

// Codes of e2m1 (OCP Microscaling Formats 1.0, sec. 5.3.3): a sign and a magnitude of 0, 0.5, 1,
// 1.5, 2, 3, 4 or 6. Twice the values are whole, and these less the lowest are bytes, so that a
// nibble is multiplied by activations like any other code once it is looked up.

#include <cstdint>

namespace pinion::kernels::impl {
namespace {

constexpr int kLowestE2M1 = -12;
// Twice the value of each nibble, less kLowestE2M1. Four copies: one for each lane of a vector's
// shuffle.
alignas(64) constexpr uint8_t kE2M1Bytes[64] = {
    12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0,  //
    12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0,  //
    12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0,  //
    12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

}  // namespace
}  // namespace pinion::kernels::impl
