#pragma once

#include <optional>
#include <string>

#include "engine/checkpoint/model.h"
#include "engine/checkpoint/tensors.h"

namespace pinion {

// A sentence for the user if the weights hold layers that the model's description does not count:
// it then computes fewer layers than were trained. Layers that predict further tokens are left out
// on purpose and do not count.
std::optional<std::string> UnreadLayers(const ModelFiles& files, const TensorSource& weights);

}  // namespace pinion
