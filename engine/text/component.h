#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/base/strings.h"
#include "engine/text/regex.h"
#include "engine/text/steps.h"

namespace pinion {

// The common part of the readers of tokenizer.json's components.

// The component's "type"; errors name `role` ("normalizer", ...).
Result<std::string> ComponentType(const Json& component, std::string_view role);
// The error for a type that Pinion does not know, naming those it does.
tl::unexpected<Error> UnknownComponent(std::string_view role, std::string_view type,
                                       std::string_view known);
// A {"String": text} or {"Regex": pattern} under "pattern".
Result<std::shared_ptr<const Regex>> ReadPattern(const Json& component);
// A string of exactly one character under `key`.
Result<std::string> ReadCharacter(const Json& component, std::string_view key,
                                  std::string_view fallback);
// The results of `make` for each component of a tree of Sequences, in order; `key` holds a
// Sequence's children.
template <typename T>
Result<std::vector<T>> ReadTree(const Json& component, std::string_view role, std::string_view key,
                                Result<T> (*make)(const Json& component, std::string_view type)) {
  PINION_ASSIGN(const std::string type, ComponentType(component, role));
  std::vector<T> all;
  if (type != "Sequence") {
    PINION_ASSIGN(all.emplace_back(), make(component, type));
    return all;
  }
  const Json* children = component.Find(key);
  if (!children || !children->is_array())
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' of a Sequence is missing, want an array"));
  for (const Json& child : children->array()) {
    PINION_ASSIGN(std::vector<T> some, ReadTree(child, role, key, make));
    for (T& made : some) all.push_back(std::move(made));
  }
  return all;
}

// `text` with every match of `pattern` replaced by `content`. Errors: the pattern's, and a result
// larger than `growth` allows.
Result<std::string> ReplaceAll(std::string_view text, const Regex& pattern,
                               std::string_view content, const Growth& growth);

// GPT-2's table of printable characters for bytes: each byte of `text` as one character.
std::string BytesToCharacters(std::string_view text);
// The inverse; false if a character does not stand for a byte.
bool CharactersToBytes(std::string_view text, std::string& dst);

}  // namespace pinion
