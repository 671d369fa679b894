#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/spec/spec.h"

namespace pinion {

// The part of `pinion model info` that describes a decoder beyond its size: every field that enters
// the mathematics.
//
// Adds these to a JSON object, under the fields' names.
void AddSpecFields(const DecoderSpec& spec, Json& json);
// As rows of text, heading and value; neutral values, and parts that the model lacks, are left out.
using Facts = std::vector<std::pair<std::string, std::string>>;
Facts SpecFacts(const DecoderSpec& spec);

}  // namespace pinion
