#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "engine/base/json.h"
#include "engine/serve/schema.h"

namespace pinion {

// ApiError::code of a field that no request has, and the outcome in the metrics.
inline constexpr const char* kUnknownField = "unknown_parameter";

// 400 for a field that would change the answer in a way that Pinion does not support, by its name
// and with another way. Its value may be one without effect: null, false, 0 or nothing.
ApiResult<void> RefuseUnsupported(const Json& body);

// 400 for a field that is neither read by the endpoint nor known to leave the answer as it is: a
// client that sent it would get an answer that it did not ask for. With `ignore`, their number.
ApiResult<size_t> CountUnknown(const Json& body, bool chat, bool ignore);
// The same for an endpoint that reads the fields `read`.
ApiResult<size_t> CountUnknownBeside(const Json& body, std::span<const std::string_view> read,
                                     bool ignore);

// Whether a list of names has this one.
template <typename List>
bool Holds(const List& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace pinion
