#pragma once

#include "engine/base/result.h"
#include "engine/checkpoint/gguf_header.h"
#include "engine/checkpoint/gguf_translation.h"

namespace pinion {

// Gemma's largest models divide products by another root than that of the heads' width, which files
// do not state; llama.cpp knows them by their number of layers, too.
void CopyGemmaScale(GgufTranslation& translation);

// What only the tensors of Gemma's small models tell: rows of the layers' inputs, LAuReL's rank;
// and the share of gates that Gemma 3n leaves out, of which files hold the quantiles.
Status CopySmallGemma(const GgufHeader& header, GgufTranslation& translation);

}  // namespace pinion
