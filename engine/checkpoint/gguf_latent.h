#pragma once

#include <memory>
#include <string>

#include "engine/base/result.h"
#include "engine/checkpoint/gguf.h"

namespace pinion {

// Adds the matrices that raise latents to keys and values, under the spec's names. Files hold them
// in two tensors, the keys' transposed (for the form of attention that multiplies queries instead):
//   attn_k_b  [heads][kv_rank][nope_dim]
//   attn_v_b  [heads][value_dim][kv_rank]
// They are shown in float32, whatever their types.
Result<std::unique_ptr<TensorSource>> WithLatentRows(std::unique_ptr<TensorSource> source,
                                                     std::shared_ptr<const GgufFile> gguf,
                                                     const DecoderSpec& spec);

}  // namespace pinion
