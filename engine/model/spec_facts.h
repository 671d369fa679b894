#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/model/spec.h"

namespace pinion {

// What `pinion model info` says of a decoder beyond its size: every field that enters the
// mathematics.
//
// Adds them to a JSON object, under the fields' names.
void AddSpecFields(const DecoderSpec& spec, Json& json);
// As rows of text, heading and value; what is neutral is left out.
std::vector<std::pair<std::string, std::string>> SpecFacts(const DecoderSpec& spec);

}  // namespace pinion
