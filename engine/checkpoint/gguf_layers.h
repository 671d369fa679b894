#pragma once

#include "engine/base/result.h"
#include "engine/checkpoint/gguf_architectures.h"
#include "engine/checkpoint/gguf_header.h"
#include "engine/checkpoint/gguf_translation.h"

namespace pinion {

// How many layers there are, without those that predict further tokens, and what each of them is:
// heads, windows, mixers and widths, of which files hold a number for all layers or for each.
Status CopyGgufLayers(const GgufHeader& header, const GgufArchitecture& architecture,
                      GgufTranslation& translation);

}  // namespace pinion
