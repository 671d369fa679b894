#pragma once

#include <string>

#include "engine/base/json.h"

// Texts from outside as YAML, which is read by parsers that differ in what they take as it is.

namespace pinion::harness {

// A scalar: JSON's strings are YAML's as well, but for characters that YAML does not let stand in a
// stream, or takes for the end of a line. Those are escaped.
std::string YamlText(const std::string& text);

// The same for a whole JSON document, which stays the same document: for a block of text in YAML.
std::string YamlSafeJson(const Json& value, int indent);

// `text`, whose lines each get `by` before them.
std::string Indented(const std::string& text, const std::string& by);

// A comment of YAML that no text in it can end: characters that could become spaces.
std::string YamlComment(const std::string& text);

}  // namespace pinion::harness
