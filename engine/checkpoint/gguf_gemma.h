#pragma once

#include "engine/base/result.h"
#include "engine/checkpoint/gguf_header.h"
#include "engine/checkpoint/gguf_translation.h"

namespace pinion {

// Gemma's largest models divide products by another root than that of the heads' width, which files
// do not state; llama.cpp knows them by their number of layers, too.
void CopyGemmaScale(GgufTranslation& translation);

// Fields of Gemma's small models: the rows of the layers' inputs and LAuReL's rank, by the shapes
// of their tensors, and the share of gates that Gemma 3n leaves out, of which files hold quantiles.
Status CopySmallGemma(const GgufHeader& header, GgufTranslation& translation);

}  // namespace pinion
