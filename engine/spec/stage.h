#pragma once

#include <cstddef>

#include "engine/spec/spec.h"

namespace pinion {

// The layers [begin, end) of `spec`, with what comes before the first and after the last layer if
// they are among them.
DecoderSpec StageOf(const DecoderSpec& spec, int begin, int end);

// The layers of a spec's stage.
inline size_t FirstLayer(const DecoderSpec& spec) { return static_cast<size_t>(spec.stage.begin); }
inline size_t EndOfLayers(const DecoderSpec& spec) {
  return static_cast<size_t>(spec.stage.end < 0 ? spec.layers : spec.stage.end);
}

}  // namespace pinion
