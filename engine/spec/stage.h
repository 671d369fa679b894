#pragma once

#include <cstddef>
#include <vector>

#include "engine/spec/spec.h"

namespace pinion {

// The layers [begin, end) of `spec`, with the parts before the first and after the last layer if
// they are among them.
DecoderSpec StageOf(const DecoderSpec& spec, int begin, int end);

// The layers at which a stage may begin, the first one included: those behind which no layer sees
// keys and values of one before.
std::vector<int> StageBegins(const DecoderSpec& spec);

// The floats that a stage hands over for each token: all residual streams, one after the other.
inline size_t HandoverFloats(const DecoderSpec& spec) {
  return static_cast<size_t>(spec.hidden) *
         static_cast<size_t>(spec.alt_up.streams > 0 ? spec.alt_up.streams : 1);
}

// The layers of a spec's stage.
inline size_t FirstLayer(const DecoderSpec& spec) { return static_cast<size_t>(spec.stage.begin); }
inline size_t EndOfLayers(const DecoderSpec& spec) {
  return static_cast<size_t>(spec.stage.end < 0 ? spec.layers : spec.stage.end);
}
inline bool IsInStage(const DecoderSpec& spec, size_t layer) {
  return layer >= FirstLayer(spec) && layer < EndOfLayers(spec);
}

}  // namespace pinion
