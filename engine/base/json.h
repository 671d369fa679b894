#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/result.h"
#include "engine/base/strings.h"

namespace pinion {

// A JSON value that keeps the order of its keys and tells integers from reals.
//
// Only json.cc includes the JSON library; all other code uses this type. A value owns its children.
// Not thread-safe for writing; any number of readers is fine.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(static_cast<int64_t>(value)) {}
  Json(int64_t value) : value_(value) {}
  Json(uint64_t value);  // stored as a real if it exceeds int64
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}
  template <typename T>
  Json(const std::vector<T>& items) : value_(Array(items.begin(), items.end())) {}

  static Json MakeObject() { return Json(Object{}); }
  static Json MakeArray() { return Json(Array{}); }

  // Nesting deeper than 200, invalid UTF-8 and trailing text are errors that name the position.
  static Result<Json> Parse(std::string_view text);
  static Result<Json> ParseFile(const std::string& path);

  // indent < 0: one line. Invalid UTF-8 in strings becomes U+FFFD. NaN and infinities become null.
  std::string Dump(int indent = -1) const;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  const char* type_name() const;  // with its article: "null", "a string", "an integer", ...

  // The value as its known type; asking for another type is a bug (CHECK). Reals that hold whole
  // numbers do not count as integers.
  bool boolean() const;
  int64_t integer() const;
  double number() const;  // integers too
  const std::string& string() const;
  const Array& array() const;
  const Object& object() const;
  Array& array();
  Object& object();

  // The value of `key`, the last one if it is repeated; nullptr if absent or not an object.
  // Linear in the number of keys: for a vocabulary, walk object() instead.
  const Json* Find(std::string_view key) const;
  // Sets or adds a key of an object (null becomes an empty object first).
  void Set(std::string_view key, Json value);
  void Append(Json value);  // to an array (null becomes an empty array first)

  bool operator==(const Json& other) const { return value_ == other.value_; }

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

// Typed look-up in an object, for T = bool, int, int64_t, double, std::string.
// Require: absent, null or of another type is an error that names the key and the value found.
// Optional: absent or null gives `fallback`; another type is an error.
template <typename T>
Result<T> Require(const Json& object, std::string_view key);
template <typename T>
Result<T> Optional(const Json& object, std::string_view key, T fallback);

}  // namespace pinion
