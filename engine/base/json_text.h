#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"

namespace pinion {

// Functions that a server applies to strangers' JSON, in time linear in its size.

// Appends `text` as a JSON string, quotes included, byte for byte as Json::Dump writes it.
void AppendJsonString(std::string& out, std::string_view text);

// The beginning of Dump() for an error's text: at most `bytes` (above 3), with "..." at the end if
// some is missing. The work does not depend on the value's size.
std::string Excerpt(const Json& value, size_t bytes = 60);

// One object with the keys of all: a repeated key keeps its first place and its last value. For
// many keys, where Json::Set would look through all of them for each.
Json MergeObjects(std::vector<Json::Object> objects);

}  // namespace pinion
