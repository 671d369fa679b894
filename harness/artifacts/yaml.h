#pragma once

#include <string>

#include "engine/base/json.h"

// Texts from outside as YAML, for parsers that differ in the plain texts that they take.

namespace pinion::harness {

// A scalar: JSON's strings are YAML's as well, but for characters that YAML does not let stand in a
// stream, or takes for the end of a line. Those are escaped.
std::string YamlText(const std::string& text);

// The same for a whole JSON document, which stays the same document: for a block of text in YAML.
std::string YamlSafeJson(const Json& value, int indent);

// `text`, whose lines each get `by` before them.
std::string Indented(const std::string& text, const std::string& by);

// A line of a block of text: characters that would end it, or are not allowed, become a space or an
// escape.
std::string YamlSafeLine(const std::string& line);

}  // namespace pinion::harness
