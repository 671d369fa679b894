#pragma once

#include <memory>
#include <string>

#include "engine/base/result.h"
#include "engine/model/spec.h"
#include "engine/model/tensors.h"
#include "engine/quant/quantised.h"
#include "engine/quant/scheme.h"

namespace pinion {

// How Pinion itself rounds a matrix to integers, each to the nearest.
struct RoundingScheme {
  int bits = 8;
  size_t group = 0;       // columns; 0: whole rows
  bool symmetric = true;  // scale = absmax / highest code; else the range from least to most
};

// A matrix of `source` rounded as it is read; `source` outlives it.
std::unique_ptr<QuantisedTensor> RoundTensor(const TensorSource& source, const TensorInfo& info,
                                             const RoundingScheme& scheme);

// "w8a8", "awq" and "gptq": the schemes that made-up weights can have.
Result<QuantScheme> MadeUpScheme(const std::string& name);
// `plain` with its linears rounded as `scheme` has them.
Result<std::unique_ptr<TensorSource>> RoundLinears(std::unique_ptr<TensorSource> plain,
                                                   const DecoderSpec& spec,
                                                   const QuantScheme& scheme);

// `source`, whose head is int8 where it was not quantised; the embedding that it may be tied to is
// read as before.
std::unique_ptr<TensorSource> WithInt8Head(std::unique_ptr<TensorSource> source,
                                           const DecoderSpec& spec);

}  // namespace pinion
