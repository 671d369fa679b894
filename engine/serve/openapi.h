#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "engine/serve/fields.h"
#include "engine/serve/schema.h"

namespace pinion {

// A parameter behind a path's question mark, which may be left out.
struct QueryParameter {
  std::string_view name;
  const char* schema;  // a JSON Schema of its values
};

// The answer of an endpoint that cannot fulfil a request: an error in the form of its API, or the
// engine's state.
enum class Failure { kError, kState };

// The description of an endpoint for clients.
struct EndpointFacts {
  std::string_view path;  // "{name}" in it stands for any text
  std::string_view method;
  const char* summary;
  std::optional<Api> body = {};  // whose fields its JSON bodies have; unset: it reads none, or
  const char* media = "application/json";  // of its answers other than errors
  std::optional<QueryParameter> query = {};
  Failure failure = Failure::kError;
  std::span<const Api> bodies = {};  // those of any of several
};

// An OpenAPI 3.1 document of these endpoints; the fields of their bodies are those of FieldTable,
// as far as the rules allow them.
// `root_path`: see HttpRules.
Json OpenApiDocument(std::span<const EndpointFacts> endpoints, const FieldRules& rules,
                     const std::string& root_path = {});

}  // namespace pinion
