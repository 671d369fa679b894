#pragma once

#include <cstdint>

namespace pinion {

// Number `index` of the stream of `seed`, uniform on [0, 1). A pure function, so that a request's
// draws do not depend on order, thread or restarts.
//
// SplitMix64's finaliser (Steele et al., "Fast Splittable Pseudorandom Number Generators", OOPSLA
// 2014, sec. 3.5) over a counter. The seed is mixed first: seeds that differ by a multiple of the
// increment would otherwise give shifted copies of one stream.
double UniformAt(uint64_t seed, uint64_t index);

// The seed of request number `request` if the client gave none.
uint64_t RequestSeed(uint64_t engine_seed, uint64_t request);

}  // namespace pinion
