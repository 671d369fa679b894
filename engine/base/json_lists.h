#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"

// Lenient readers of JSON that another version or program may have written: a value that is missing
// or of another type counts as empty.

namespace pinion {

// The items of a list, or no items if there is no list.
inline const Json::Array& ItemsOf(const Json* list) {
  static const Json::Array none;
  return list && list->is_array() ? list->array() : none;
}
inline const Json::Array& ItemsOf(const Json& object, std::string_view key) {
  return ItemsOf(object.Find(key));
}

// The integers of a list, such as a plan's CPUs, and the strings.
inline std::vector<int> IntegersIn(const Json* list) {
  std::vector<int> integers;
  for (const Json& item : ItemsOf(list))
    if (item.is_int()) integers.push_back(static_cast<int>(item.integer()));
  return integers;
}
inline std::vector<std::string> StringsIn(const Json& list) {
  std::vector<std::string> strings;
  for (const Json& item : ItemsOf(&list))
    if (item.is_string()) strings.push_back(item.string());
  return strings;
}

// A string as it is, any other value as JSON.
inline std::string AsText(const Json& value) {
  return value.is_string() ? value.string() : value.Dump();
}

// The string that an object has under a key; empty if there is none.
inline std::string TextAt(const Json& object, std::string_view key) {
  return Optional<std::string>(object, key, "").value_or("");
}

}  // namespace pinion
