#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/serve/schema.h"

namespace pinion {

// A set of APIs.
class ApiSet {
 public:
  constexpr ApiSet() = default;
  constexpr ApiSet(Api api) : bits_(uint32_t{1} << static_cast<unsigned>(api)) {}
  constexpr bool Has(Api api) const { return (bits_ & ApiSet(api).bits_) != 0; }
  constexpr ApiSet With(ApiSet other) const {
    other.bits_ |= bits_;
    return other;
  }

 private:
  uint32_t bits_ = 0;
};
constexpr ApiSet operator|(ApiSet a, ApiSet b) { return a.With(b); }
// Operators on enumerations alone see no conversion.
constexpr ApiSet operator|(Api a, Api b) { return ApiSet(a).With(b); }

// A field of request bodies. APIs in one row mean the same by it, so that its value goes on as it
// is when the body of one is translated to that of another.
struct Field {
  std::string_view name;
  const char* schema;       // a JSON Schema of its values; null means everywhere that it is absent
  ApiSet read_by;           // these refuse values of other types
  ApiSet ignored_by = {};   // whose answers it does not change, whatever its value
  ApiSet required_by = {};  // of read_by
};

// A program of the client's: bodies have it if the server trusts them with it.
inline constexpr const char* kChatTemplate = "chat_template";

// All fields that bodies may have and /openapi.json describes, by their names.
std::span<const Field> FieldTable();

// The row of this name that `api` reads or ignores; null if it has no such field.
const Field* FindField(Api api, std::string_view name);

// A field that clients of `api` know but that asks for a feature that Pinion lacks. Any other value
// than null, false, 0 or nothing is refused, with another way.
struct UnsupportedField {
  std::string_view name;
  ApiSet known_by;
  const char* advice;
};
const UnsupportedField* FindUnsupported(Api api, std::string_view name);

}  // namespace pinion
