// Reads what constrains an answer: formats, structured outputs, and tools that must be called.

#include <string>
#include <utility>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"

namespace pinion {
namespace {

using Checked = ApiResult<void>;

constexpr const char* kAnyObject = R"({"type": "object"})";

// Sets the grammar, of which a request has one.
Checked Set(GenerationRequest& request, const char* field, Grammar grammar) {
  if (request.grammar)
    return Bad(field, StrCat("'", field, "' and '", request.grammar_field,
                             "' both constrain the answer; send one of them"));
  request.grammar = std::move(grammar);
  request.grammar_field = field;
  return {};
}

tl::unexpected<ApiError> BadValue(const char* field, const Json& value, const char* wanted) {
  return Bad(field, StrCat("'", field, "' has ", Excerpt(value, 100), ", want ", wanted));
}

// A JSON Schema, or the text of one.
Checked SetSchema(GenerationRequest& request, const char* field, const Json& schema) {
  if (schema.is_string()) return Set(request, field, {"json", schema.string()});
  if (schema.is_object() || schema.is_bool()) return Set(request, field, {"json", schema.Dump()});
  return BadValue(field, schema, "a JSON Schema, an object");
}

Checked SetText(GenerationRequest& request, const char* field, const char* kind,
                const Json& value) {
  if (value.is_string()) return Set(request, field, {kind, value.string()});
  return BadValue(field, value, "a string");
}

Checked SetChoice(GenerationRequest& request, const char* field, const Json& value) {
  if (value.is_array()) return Set(request, field, {"choice", value.Dump()});
  return BadValue(field, value, "a list of strings");
}

Checked ReadFormat(const Json& body, GenerationRequest& request) {
  constexpr const char* kField = "response_format";
  const Json* format = body.Find(kField);
  if (!format || format->is_null()) return {};
  const Json* type = format->Find("type");
  const std::string name = type && type->is_string() ? type->string() : "";
  if (name == "text") return {};
  if (name == "json_object" && Given(*format, "schema"))  // as llama-server has it
    return SetSchema(request, kField, *format->Find("schema"));
  if (name == "json_object") return Set(request, kField, {"json", kAnyObject});
  if (name == "structural_tag") return Set(request, kField, {"structural_tag", format->Dump()});
  if (name != "json_schema")
    return Bad(kField, StrCat("'response_format' is ", Excerpt(*format, 100),
                              ", want type text, json_object, json_schema or structural_tag"));
  const Json* inner = format->Find("json_schema");
  const Json* schema = inner ? inner->Find("schema") : nullptr;
  if (!schema)
    return Bad(kField,
               "'response_format' has no 'json_schema.schema', want the schema of the answer");
  return SetSchema(request, kField, *schema);
}

Checked ReadStructured(const Json& body, GenerationRequest& request) {
  constexpr const char* kField = "structured_outputs";
  const Json* asked = body.Find(kField);
  if (!asked || asked->is_null()) return {};
  if (!asked->is_object()) return BadValue(kField, *asked, "an object");
  for (const auto& [key, value] : asked->object()) {
    if (value.is_null() || key == "disable_fallback" || key == "disable_any_whitespace") continue;
    if (key == "json") {
      PINION_TRY(SetSchema(request, kField, value));
    } else if (key == "regex" || key == "grammar" || key == "structural_tag") {
      PINION_TRY(SetText(request, kField, key.c_str(), value));
    } else if (key == "choice") {
      PINION_TRY(SetChoice(request, kField, value));
    } else if (key == "json_object") {
      if (!value.is_bool()) return BadValue(kField, value, "true or false for 'json_object'");
      if (value.boolean()) PINION_TRY(Set(request, kField, {"json", kAnyObject}));
    } else {
      return Bad(kField, StrCat("'structured_outputs' has '", key.substr(0, 100),
                                "', want json, json_object, regex, choice, grammar or "
                                "structural_tag"));
    }
  }
  return {};
}

Checked ReadGuided(const Json& body, GenerationRequest& request) {
  if (const Json* schema = body.Find("guided_json"); schema && !schema->is_null())
    PINION_TRY(SetSchema(request, "guided_json", *schema));
  if (const Json* regex = body.Find("guided_regex"); regex && !regex->is_null())
    PINION_TRY(SetText(request, "guided_regex", "regex", *regex));
  if (const Json* choice = body.Find("guided_choice"); choice && !choice->is_null())
    PINION_TRY(SetChoice(request, "guided_choice", *choice));
  if (const Json* grammar = body.Find("guided_grammar"); grammar && !grammar->is_null())
    PINION_TRY(SetText(request, "guided_grammar", "grammar", *grammar));
  return {};
}

}  // namespace

ApiResult<void> ReadGrammar(const Json& body, GenerationRequest& request) {
  PINION_TRY(ReadFormat(body, request));
  PINION_TRY(ReadStructured(body, request));
  return ReadGuided(body, request);
}

}  // namespace pinion
