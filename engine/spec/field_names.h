#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace pinion {

// By the name of a field as code reads it: the name that it has in the file.
using FieldNames = std::map<std::string, std::string, std::less<>>;

// The message with each quoted field ('hidden_size') under the name that it has in the file.
std::string WithFileNames(std::string_view message, const FieldNames& names);

}  // namespace pinion
