#include "engine/serve/fields.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"

namespace pinion {
namespace {

// Whether a value has no effect: null, false, 0, "" or an empty list or object.
bool IsNothing(const Json& value) {
  if (value.is_bool()) return !value.boolean();
  if (value.is_number()) return value.number() == 0;
  if (value.is_string()) return value.string().empty();
  if (value.is_array()) return value.array().empty();
  if (value.is_object()) return value.object().empty();
  return true;
}

}  // namespace

FieldRules RulesOf(const FrontLimits& limits) {
  return {limits.ignore_unknown_fields, limits.trust_request_chat_template};
}

bool Allows(const FieldRules& rules, const Field& field) {
  return rules.trusts_templates || field.name != kChatTemplate;
}

ApiResult<size_t> CheckFields(Api api, const Json& body, const FieldRules& rules) {
  if (!body.is_object())
    return Bad("", StrCat("the body is ", body.type_name(), ", want an object"));
  size_t unknown = 0;
  for (const auto& [name, value] : body.object()) {
    const Field* known = FindField(api, name);
    if (value.is_null() || (known && Allows(rules, *known))) continue;
    if (const UnsupportedField* field = FindUnsupported(api, name)) {
      if (IsNothing(value)) continue;
      return Bad(name, StrCat("'", name, "' is not supported; ", field->advice));
    }
    ++unknown;
    if (rules.ignores_unknown) continue;
    const std::string shown = name.substr(0, 100);
    return Unexpected({400,
                       StrCat("'", shown, "' is not a field of this endpoint and might change the ",
                              "answer; leave it out, or start the server with "
                              "--ignore-unknown-fields"),
                       shown, kUnknownField});
  }
  return unknown;
}

void TakeWholeReals(Api api, Json& body) {
  constexpr double kMost = 9007199254740992;  // 2^53: above it reals skip whole numbers
  for (auto& [name, value] : body.object()) {
    if (!value.is_number() || value.is_int()) continue;
    const double real = value.number();
    if (real != std::trunc(real) || std::abs(real) > kMost) continue;
    const Field* field = FindField(api, name);
    if (field && field->read_by.Has(api) &&
        std::string_view(field->schema).find("\"integer\"") != std::string_view::npos)
      value = Json(static_cast<int64_t>(real));
  }
}

size_t DropToolsOfOtherTypes(Api api, Json& body) {
  const Json own(api == Api::kMessages || api == Api::kCountTokens ? "custom" : "function");
  size_t dropped = 0;
  for (auto& [name, value] : body.object()) {
    if (name != "tools" || !value.is_array()) continue;
    dropped += std::erase_if(value.array(), [&](const Json& tool) {
      const Json* type = tool.Find("type");
      return type && type->is_string() && *type != own;
    });
  }
  return dropped;
}

Json SharedFields(const Json& body, Api from, Api to) {
  Json shared = Json::MakeObject();
  for (const auto& [name, value] : body.object()) {
    const Field* field = value.is_null() ? nullptr : FindField(from, name);
    if (field && field->read_by.Has(from) && field->read_by.Has(to))
      shared.object().emplace_back(name, value);
  }
  return shared;
}

ApiError AsSent(const TranslatedBody& read, ApiError error) {
  for (const auto& [name, sent] : read.renamed) {
    if (error.param == name) error.param = sent;
    const std::string quoted = StrCat("'", name, "'");
    if (error.message.starts_with(name + " ")) error.message.replace(0, name.size(), sent);
    if (const size_t at = error.message.find(quoted); at != error.message.npos)
      error.message.replace(at, quoted.size(), StrCat("'", sent, "'"));
  }
  return error;
}

std::string NameAsSent(const TranslatedBody& read, std::string name) {
  for (const auto& [own, sent] : read.renamed)
    if (own == name) return sent;
  return name;
}

}  // namespace pinion
