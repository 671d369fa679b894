#pragma once

#include <cstdint>

namespace pinion {

// Number `index` of the stream of `seed`, uniform on [0, 1): a function of the two alone, so a
// request can be drawn from in any order, on any thread, and again after a restart.
//
// SplitMix64's finaliser (Steele et al., "Fast Splittable Pseudorandom Number Generators", OOPSLA
// 2014, sec. 3.5) over a counter. The seed is mixed first: seeds that differ by a multiple of the
// increment would otherwise give shifted copies of one stream.
double UniformAt(uint64_t seed, uint64_t index);

// A seed for the request numbered `request` that named none.
uint64_t RequestSeed(uint64_t engine_seed, uint64_t request);

}  // namespace pinion
