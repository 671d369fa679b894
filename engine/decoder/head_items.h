#pragma once

#include <cstddef>

#include "engine/spec/spec.h"

namespace pinion {

// How heads are cut into the items that threads share, between their projection and attention.

// How many consecutive rows of a head are prepared one after the other. The keys of so many tokens
// share cache lines: one head's lines stay in L1 while they are filled, all heads' do not. A step
// of few rows is cut into single ones, so that even one row keeps every thread busy.
size_t RowsTogether(size_t rows, size_t heads, size_t threads);

// Whether a layer's queries change behind their projection: otherwise keys alone are prepared.
bool ChangesQueries(const DecoderSpec& spec, size_t layer);

}  // namespace pinion
