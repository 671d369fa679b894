#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/text/regex.h"

namespace pinion {

// What the readers of tokenizer.json's components share.

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
// The list under `key`, mapped through `read`; a Sequence's children.
template <typename T>
Result<std::vector<T>> ReadChildren(const Json& component, std::string_view key,
                                    Result<T> (*read)(const Json&)) {
  const Json* list = component.Find(key);
  if (!list || !list->is_array())
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' of a Sequence is missing, want an array"));
  std::vector<T> children;
  for (const Json& child : list->array()) {
    PINION_ASSIGN(T made, read(child));
    children.push_back(std::move(made));
  }
  return children;
}

// `text` with every match of `pattern` replaced by `content`.
Result<std::string> ReplaceAll(std::string_view text, const Regex& pattern,
                               std::string_view content);

// GPT-2's table of printable characters for bytes: each byte of `text` as one character.
std::string BytesToCharacters(std::string_view text);
// The way back; false where a character stands for no byte.
bool CharactersToBytes(std::string_view text, std::string& dst);

}  // namespace pinion
