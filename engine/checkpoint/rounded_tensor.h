#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/quantised.h"
#include "engine/checkpoint/rounding.h"
#include "engine/checkpoint/scheme.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/spec.h"

namespace pinion {

// A matrix of `source` rounded as it is read; `source` outlives it.
std::unique_ptr<QuantisedTensor> RoundTensor(const TensorSource& source, const TensorInfo& info,
                                             const RoundingScheme& scheme);

// "w8a8", "awq" and "gptq": the schemes that checkpoints of made-up weights can have.
Result<QuantScheme> MadeUpScheme(const std::string& name);
// These and three more that a preset in memory can have: "fp8", e4m3 with a scale for 128 columns
// of a row, which costs what a published scale of 128 x 128 weights costs, "nvfp4", and "mxfp4",
// which rounds the experts of a mixture as GPT-OSS is published.
Result<QuantScheme> PresetScheme(const std::string& name);
// The weights of the linears that are quantised: all but those of modules that stay plain.
std::vector<std::string> RoundedLinears(const DecoderSpec& spec);
// The head; a classifier, a thousandth of the weights; routers, which no scheme touches; Gated
// DeltaNet's linears, which are packed together with ones that no scheme covers.
std::vector<std::string> PlainLinears(const DecoderSpec& spec);
// The weights of all experts, each a linear of its own.
std::vector<std::string> ExpertLinears(const DecoderSpec& spec);
RoundingScheme RoundingOf(const QuantScheme& scheme);
// `plain` with its linears rounded according to `scheme`.
Result<std::unique_ptr<TensorSource>> RoundLinears(std::unique_ptr<TensorSource> plain,
                                                   const DecoderSpec& spec,
                                                   const QuantScheme& scheme);

// `source` with the head in int8 if it was not quantised; the embedding that it may be tied to does
// not change.
std::unique_ptr<TensorSource> WithInt8Head(std::unique_ptr<TensorSource> source,
                                           const DecoderSpec& spec);

}  // namespace pinion
