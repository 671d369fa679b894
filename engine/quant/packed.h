#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/result.h"
#include "engine/quant/quantised.h"
#include "engine/quant/scheme.h"

namespace pinion {

// A tensor as a safetensors file stores it, whatever its type; the header check has seen that its
// bytes are all there. The file outlives what is read from it.
struct StoredTensor {
  std::string dtype;  // "I32", "BF16", ...
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;   // not aligned
  const MappedFile* file = nullptr;  // that data lies in; null: memory of somebody's own

  // These bytes have been packed and will hardly be read again: a file's pages may go.
  void Release(size_t begin, size_t bytes) const;
};
// Empty where there is no tensor of that name.
using StoredLookup = std::function<std::optional<StoredTensor>(const std::string& name)>;

// The scale and zero point that a checkpoint gives a linear's activations.
struct StaticRounding {
  float scale = 1;
  int zero_point = 0;  // -128 to 127
};

// The quantised weight of the linear `module` ("model.layers.0.mlp.up_proj"); null where its weight
// is stored plainly, which every scheme allows for some linears. Types, shapes, group indices and
// the order of zeros are checked; errors name the tensor.
Result<std::unique_ptr<QuantisedTensor>> OpenQuantised(const QuantScheme& scheme,
                                                       const std::string& module,
                                                       const StoredLookup& lookup);

// The static rounding of a linear's activations.
Result<StaticRounding> ReadStaticRounding(const std::string& module, const StoredLookup& lookup);

}  // namespace pinion
