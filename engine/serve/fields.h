#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "engine/serve/field_table.h"
#include "engine/serve/options.h"
#include "engine/serve/schema.h"

namespace pinion {

// ApiError::code of a field that no request has, and the outcome in the metrics.
inline constexpr const char* kUnknownField = "unknown_parameter";

// The fields that a server's bodies may have.
struct FieldRules {
  bool ignores_unknown = false;  // instead of refusing them
  bool trusts_templates = false;
};
FieldRules RulesOf(const FrontLimits& limits);

// Whether they may have this one.
bool Allows(const FieldRules& rules, const Field& field);

// 400 for a body that is not an object; for a field that asks for a feature that Pinion lacks, with
// another way (its value may be one without effect: null, false, 0 or nothing); and for a field
// that is not in FieldTable: a client that sent it would get an answer that it did not ask for. If
// those are ignored, their number.
ApiResult<size_t> CheckFields(Api api, const Json& body, const FieldRules& rules);

// Makes whole numbers of those that are written as reals, 16.0 or 1e2, where a field takes
// integers: JSON Schema, by which clients write bodies, tells no difference.
void TakeWholeReals(Api api, Json& body);

// Leaves out the tools of types that this server does not know, of a body of an API whose tools
// have types; how many there were. For servers that ignore what they do not know.
size_t DropToolsOfOtherTypes(Api api, Json& body);

// An object of those fields of `body` that both APIs read and mean the same by, except nulls.
Json SharedFields(const Json& body, Api from, Api to);

// An error about `read.body`, in the names that its client sent. The name of one field, likewise.
ApiError AsSent(const TranslatedBody& read, ApiError error);
std::string NameAsSent(const TranslatedBody& read, std::string name);

// Whether a list of names has this one.
template <typename List>
bool Holds(const List& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace pinion
