#pragma once

#include "engine/base/result.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_architectures.h"
#include "engine/checkpoint/gguf_translation.h"

namespace pinion {

// Rotary position embeddings as config.json states them, from the metadata and from the tensors of
// factors beside them.
Status CopyGgufRope(const GgufFile& gguf, const GgufArchitecture& architecture,
                    GgufTranslation& translation);

// Makes the file's frequency factors those of the first rope, if its type does not imply them.
Status ApplyGgufRope(const GgufFile& gguf, DecoderSpec& spec);

}  // namespace pinion
