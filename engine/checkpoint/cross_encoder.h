#pragma once

#include <cstdint>
#include <string>

#include "engine/base/result.h"

namespace pinion {

// Folders of cross-encoders in the layout of sentence-transformers 5.4 and later: modules.json, and
// config_sentence_transformers.json with the model type CrossEncoder. Errors name the file.

// Whether the folder is such a one: false of any other, kUnsupported if it has modules that Pinion
// does not compute.
Result<bool> IsCrossEncoder(const std::string& folder);

// The activation of scores that it asks for ("torch.nn.modules.linear.Identity"); "" if it leaves
// that to config.json, or if the folder is another kind of model's.
Result<std::string> CrossEncoderActivation(const std::string& folder);

// An error if it scores by the logits of other tokens than these. A folder that does not say so is
// fine.
Status CheckLogitScore(const std::string& folder, int64_t yes, int64_t no);

}  // namespace pinion
