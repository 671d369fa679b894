#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/json_text.h"
#include "engine/base/result.h"
#include "engine/base/strings.h"

// Structs as JSON objects: a table of fields names each key once, for reading and for writing.

namespace pinion::harness {

template <typename T>
struct JsonField {
  const char* key;
  std::function<Status(const Json& value, T& object)> read;
  std::function<Json(const T& object)> write;  // null: the key is left out
};

template <typename T>
using JsonFields = std::vector<JsonField<T>>;

// One value of a type; the error (kUsage) begins with `what` and shows the value.
Result<int> ToInt(const Json& value, const std::string& what);
Result<double> ToNumber(const Json& value, const std::string& what);
Result<std::string> ToText(const Json& value, const std::string& what);
Result<double> ToGib(const Json& value, const std::string& what);      // 4, 0.5 or "512MiB"
Result<double> ToSeconds(const Json& value, const std::string& what);  // 90 or "10m"
template <typename V>
using Convert = Result<V> (*)(const Json& value, const std::string& what);

// Checks that no text of a definition, keys included, is longer than a path may be or has a NUL, at
// which a command line or a variable would end; the error (kUsage) begins with it.
Status CheckTexts(const Json& value);

// Checks that an object has no key twice, of which only the last would count; the error (kUsage)
// names it.
Status CheckNoneTwice(const Json& object, const std::string& where);

// Checks that an object has only these keys, each once; the error (kUsage) names the key and lists
// them.
Status CheckKeys(const Json& object, const std::string& where,
                 const std::vector<std::string>& known);

// Overwrites the fields that `json` names, in the table's order.
template <typename T>
Status ReadFields(const Json& json, const std::string& where, const JsonFields<T>& fields,
                  T& object) {
  std::vector<std::string> known;
  for (const JsonField<T>& field : fields) known.emplace_back(field.key);
  PINION_TRY(CheckKeys(json, where, known));
  for (const JsonField<T>& field : fields)
    if (const Json* value = json.Find(field.key)) PINION_TRY(field.read(*value, object));
  return {};
}

template <typename T>
Json WriteFields(const JsonFields<T>& fields, const T& object) {
  Json json = Json::MakeObject();
  for (const JsonField<T>& field : fields)
    if (Json value = field.write(object); !value.is_null()) json.Set(field.key, std::move(value));
  return json;
}

template <typename T, typename V>
JsonField<T> Value(const char* key, V T::*member, Convert<V> convert) {
  return {key,
          [=](const Json& value, T& object) -> Status {
            PINION_ASSIGN(object.*member, convert(value, StrCat("'", key, "'")));
            return {};
          },
          [=](const T& object) { return Json(object.*member); }};
}

// Left out if it is unset.
template <typename T, typename V>
JsonField<T> Maybe(const char* key, std::optional<V> T::*member, Convert<V> convert) {
  return {key,
          [=](const Json& value, T& object) -> Status {
            PINION_ASSIGN(object.*member, convert(value, StrCat("'", key, "'")));
            return {};
          },
          [=](const T& object) { return object.*member ? Json(*(object.*member)) : Json(); }};
}

// At least one value.
template <typename V>
Status ReadList(const Json& value, const char* key, Convert<V> convert, std::vector<V>& list) {
  if (!value.is_array() || value.array().empty())
    return Fail(ErrorCode::kUsage,
                StrCat("'", key, "' must be a list of at least one value, not ", Excerpt(value)));
  std::vector<V> read;
  for (const Json& item : value.array()) {
    PINION_ASSIGN(V one, convert(item, StrCat("a value of '", key, "'")));
    read.push_back(std::move(one));
  }
  list = std::move(read);
  return {};
}

// Left out if it is empty.
template <typename T, typename V>
JsonField<T> List(const char* key, std::vector<V> T::*member, Convert<V> convert) {
  return {
      key,
      [=](const Json& value, T& object) { return ReadList(value, key, convert, object.*member); },
      [=](const T& object) { return (object.*member).empty() ? Json() : Json(object.*member); }};
}

// The field, written only if it matters.
template <typename T>
JsonField<T> OnlyIf(bool (*matters)(const T& object), JsonField<T> field) {
  auto write = std::move(field.write);
  field.write = [=](const T& object) { return matters(object) ? write(object) : Json(); };
  return field;
}

}  // namespace pinion::harness
