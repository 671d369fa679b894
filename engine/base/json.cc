#include "engine/base/json.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/base/file.h"
#include "engine/base/json_text.h"

namespace pinion {
namespace {

using Library = nlohmann::ordered_json;

// The library and our code recurse, so a hostile file could otherwise overflow the stack.
constexpr size_t kMaxDepth = 200;

// Builds a Json from the library's parser events; refuses values that nest too deeply.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(Json& root) : root_(root) {}
  const std::string& error() const { return error_; }

  bool null() override { return Add(Json()); }
  bool boolean(bool value) override { return Add(Json(value)); }
  bool number_integer(number_integer_t value) override { return Add(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Json(uint64_t{value})); }
  bool number_float(number_float_t value, const string_t&) override { return Add(Json(value)); }
  bool string(string_t& value) override { return Add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Json::MakeObject()); }
  bool start_array(size_t) override { return Open(Json::MakeArray()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    keys_.back() = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& failure) override {
    std::string what = failure.what();
    const auto bracket = what.find("] ");
    if (bracket != std::string::npos) what.erase(0, bracket + 2);
    // It quotes everything since the last value, control characters as "<U+000D>".
    constexpr size_t kMostBytes = 300;
    if (what.size() > kMostBytes) what = StrCat(what.substr(0, kMostBytes), "...");
    // It quotes bytes that are not UTF-8, and may be cut inside of a character.
    what = Library::parse(Library(what).dump(-1, ' ', false, Library::error_handler_t::replace));
    error_ = StrCat("not valid JSON at byte ", position, " (", what, ")");
    return false;
  }

 private:
  bool Add(Json value) { return Place(std::move(value)) != nullptr; }

  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.array().push_back(std::move(value));
      return &parent.array().back();
    }
    parent.object().emplace_back(std::move(keys_.back()), std::move(value));
    return &parent.object().back().second;
  }

  bool Open(Json value) {
    if (open_.size() >= kMaxDepth) {
      error_ = StrCat("nested deeper than ", kMaxDepth, " levels");
      return false;
    }
    // A parent's vector grows only after its open child has closed, so the pointers stay valid.
    open_.push_back(Place(std::move(value)));
    keys_.emplace_back();
    return true;
  }

  bool Close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  Json& root_;
  std::vector<Json*> open_;
  std::vector<std::string> keys_;
  std::string error_;
};

Library ToLibrary(const Json& value) {
  if (value.is_null()) return nullptr;
  if (value.is_bool()) return value.boolean();
  if (value.is_int()) return value.integer();
  if (value.is_number()) return value.number();
  if (value.is_string()) return value.string();
  if (value.is_array()) {
    Library array = Library::array();
    for (const Json& item : value.array()) array.push_back(ToLibrary(item));
    return array;
  }
  Library object = Library::object();
  // ordered_json looks up keys linearly at every insertion; appending to its base class directly
  // keeps large objects linear.
  auto& items = object.get_ref<Library::object_t&>();
  items.reserve(value.object().size());
  for (const auto& [key, item] : value.object()) {
    using Pairs = std::vector<Library::object_t::value_type>;
    static_cast<Pairs&>(items).emplace_back(key, ToLibrary(item));
  }
  return object;
}

template <typename T>
struct Kind;
template <>
struct Kind<bool> {
  static constexpr const char* kName = "a boolean";
  static bool Fits(const Json& v) { return v.is_bool(); }
  static bool Get(const Json& v) { return v.boolean(); }
};
template <>
struct Kind<int64_t> {
  static constexpr const char* kName = "an integer";
  static bool Fits(const Json& v) { return v.is_int(); }
  static int64_t Get(const Json& v) { return v.integer(); }
};
template <>
struct Kind<int> {
  static constexpr const char* kName = "an integer below 2^31";
  static bool Fits(const Json& v) {
    return v.is_int() && v.integer() >= std::numeric_limits<int>::min() &&
           v.integer() <= std::numeric_limits<int>::max();
  }
  static int Get(const Json& v) { return static_cast<int>(v.integer()); }
};
template <>
struct Kind<double> {
  static constexpr const char* kName = "a number";
  static bool Fits(const Json& v) { return v.is_number(); }
  static double Get(const Json& v) { return v.number(); }
};
template <>
struct Kind<std::string> {
  static constexpr const char* kName = "a string";
  static bool Fits(const Json& v) { return v.is_string(); }
  static std::string Get(const Json& v) { return v.string(); }
};

template <typename T>
Result<T> Convert(const Json& value, std::string_view key) {
  if (Kind<T>::Fits(value)) return Kind<T>::Get(value);
  return Fail(ErrorCode::kCorrupt,
              StrCat("'", key, "' is ", Excerpt(value), ", want ", Kind<T>::kName));
}

}  // namespace

Json::Json(uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    value_ = static_cast<int64_t>(value);
  else
    value_ = static_cast<double>(value);
}

Result<Json> Json::Parse(std::string_view text) {
  Json root;
  Builder builder(root);
  bool good = false;
  try {
    good = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const std::exception& failure) {
    return Fail(ErrorCode::kCorrupt, StrCat("not valid JSON (", failure.what(), ")"));
  }
  if (!good) return Fail(ErrorCode::kCorrupt, builder.error());
  // The library takes one between values for the end, and ignores what follows.
  if (const size_t nul = text.find('\0'); nul != text.npos)
    return Fail(ErrorCode::kCorrupt, StrCat("not valid JSON at byte ", nul + 1, " (a NUL)"));
  return root;
}

Result<Json> Json::ParseFile(const std::string& path) {
  PINION_ASSIGN(const std::string text, ReadFile(path));
  auto parsed = Parse(text);
  if (!parsed) return Unexpected(std::move(parsed).error().In(path));
  return parsed;
}

std::string Json::Dump(int indent) const {
  return ToLibrary(*this).dump(indent, ' ', false, Library::error_handler_t::replace);
}

const char* Json::type_name() const {
  static constexpr const char* kNames[] = {"null",     "a boolean", "an integer", "a real number",
                                           "a string", "an array",  "an object"};
  return kNames[value_.index()];
}

bool Json::boolean() const {
  CHECK(is_bool()) << type_name();
  return std::get<bool>(value_);
}
int64_t Json::integer() const {
  CHECK(is_int()) << type_name();
  return std::get<int64_t>(value_);
}
double Json::number() const {
  CHECK(is_number()) << type_name();
  return is_int() ? static_cast<double>(integer()) : std::get<double>(value_);
}
const std::string& Json::string() const {
  CHECK(is_string()) << type_name();
  return std::get<std::string>(value_);
}
const Json::Array& Json::array() const {
  CHECK(is_array()) << type_name();
  return std::get<Array>(value_);
}
const Json::Object& Json::object() const {
  CHECK(is_object()) << type_name();
  return std::get<Object>(value_);
}
Json::Array& Json::array() {
  CHECK(is_array()) << type_name();
  return std::get<Array>(value_);
}
Json::Object& Json::object() {
  CHECK(is_object()) << type_name();
  return std::get<Object>(value_);
}

const Json* Json::Find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const Object& items = object();
  for (auto it = items.rbegin(); it != items.rend(); ++it)
    if (it->first == key) return &it->second;
  return nullptr;
}

void Json::Set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  for (auto& [name, old] : object()) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  object().emplace_back(std::string(key), std::move(value));
}

void Json::Append(Json value) {
  if (is_null()) value_ = Array{};
  array().push_back(std::move(value));
}

template <typename T>
Result<T> Require(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  if (!value || value->is_null())
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' is missing, want ", Kind<T>::kName));
  return Convert<T>(*value, key);
}

template <typename T>
Result<T> Optional(const Json& object, std::string_view key, T fallback) {
  const Json* value = object.Find(key);
  if (!value || value->is_null()) return fallback;
  return Convert<T>(*value, key);
}

template Result<bool> Require(const Json&, std::string_view);
template Result<int> Require(const Json&, std::string_view);
template Result<int64_t> Require(const Json&, std::string_view);
template Result<double> Require(const Json&, std::string_view);
template Result<std::string> Require(const Json&, std::string_view);
template Result<bool> Optional(const Json&, std::string_view, bool);
template Result<int> Optional(const Json&, std::string_view, int);
template Result<int64_t> Optional(const Json&, std::string_view, int64_t);
template Result<double> Optional(const Json&, std::string_view, double);
template Result<std::string> Optional(const Json&, std::string_view, std::string);

}  // namespace pinion
