#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/scheme.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/spec.h"

namespace pinion {

// A file of a model's folder other than its weights; its name may begin with a folder's, and '/'.
struct NamedText {
  std::string name, text;
};

// Refuses a folder that already holds a model (kUsage).
Status CheckHoldsNoModel(const std::string& folder);

// Writes a checkpoint folder: the tensors that `spec` names, in shards with an index, one tensor at
// a time, those that are quantised in `source` as `scheme` publishes them; then `texts`,
// config.json last, since it makes the folder a model.
//   folder       made if absent; one that already holds a model is refused (kUsage)
//   shard_bytes  a file holds at most this many bytes of weights, or one tensor
// Files have temporary names until all are written, and are removed if that fails (a full disk is
// kExhausted), so that half a checkpoint never looks like a whole one.
Status WriteModelFolder(const DecoderSpec& spec, const TensorSource& source,
                        const std::optional<QuantScheme>& scheme,
                        const std::vector<NamedText>& texts, const std::string& folder,
                        uint64_t shard_bytes = uint64_t{4} << 30);

}  // namespace pinion
