#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/checkpoint/quantised.h"
#include "engine/checkpoint/scheme.h"

namespace pinion {

// A tensor to write to a safetensors file; `data` returns all its bytes when it is written.
struct PublishedTensor {
  std::string name, dtype;  // dtype as safetensors names it
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  std::function<std::vector<std::byte>()> data;
};

// The tensors in which other engines expect a quantised linear, and which OpenQuantised reads.
// `tensor` must outlive them. Sizes that do not fill the format's words are errors that name them.
Result<std::vector<PublishedTensor>> PublishLinear(const QuantScheme& scheme,
                                                   const std::string& module,
                                                   const QuantisedTensor& tensor);

// The `quantization_config` of such a checkpoint.
// plain: modules of linears that are not quantised.
Json PublishedConfig(const QuantScheme& scheme, const std::vector<std::string>& plain);

}  // namespace pinion
