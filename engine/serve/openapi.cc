#include "engine/serve/openapi.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/serve/field_table.h"

namespace pinion {
namespace {

// The name of the schema of its bodies.
const char* BodyName(Api api) {
  switch (api) {
    case Api::kCompletions:
      return "Completion";
    case Api::kChat:
      return "ChatCompletion";
    case Api::kMessages:
      return "Message";
    case Api::kResponses:
      return "Response";
    case Api::kLlama:
      return "LlamaCompletion";
    case Api::kInfill:
      return "Infill";
    case Api::kEmbeddings:
      return "Embedding";
    case Api::kCohereEmbed:
      return "CohereEmbedding";
    case Api::kLlamaEmbed:
      return "LlamaEmbedding";
    case Api::kPooling:
      return "Pooling";
    case Api::kScore:
      return "Score";
    case Api::kRerank:
      return "Rerank";
    case Api::kClassify:
      return "Classification";
    case Api::kTokenize:
      return "Tokenization";
    case Api::kDetokenize:
      return "Detokenization";
    case Api::kApplyTemplate:
      return "TemplateApplication";
    case Api::kCountTokens:
      break;
  }
  return "TokenCount";
}

Json ParseSchema(const char* text) {
  auto schema = Json::Parse(text);
  CHECK(schema) << text;
  return std::move(*schema);
}

Json ReferenceTo(std::string_view kind, std::string_view name) {
  return Json(Json::Object{{"$ref", StrCat("#/components/", kind, "/", name)}});
}

// Clients write null for fields that they leave out.
Json NullOr(Json schema) {
  if (schema.object().empty()) return schema;
  Json::Array either = {std::move(schema), Json(Json::Object{{"type", "null"}})};
  return Json(Json::Object{{"anyOf", Json(std::move(either))}});
}

Json BodySchema(Api api, const FieldRules& rules) {
  Json::Object properties;
  Json::Array required;
  for (const Field& field : FieldTable()) {
    const bool read = field.read_by.Has(api);
    if ((!read && !field.ignored_by.Has(api)) || !Allows(rules, field)) continue;
    const bool must = field.required_by.Has(api);
    if (must) required.emplace_back(field.name);
    Json schema = Json::MakeObject();
    if (!read)
      schema.Set("description", "Taken and ignored: it does not change the answer.");
    else
      schema = must ? ParseSchema(field.schema) : NullOr(ParseSchema(field.schema));
    properties.emplace_back(field.name, std::move(schema));
  }
  Json schema = Json::MakeObject();
  schema.Set("type", "object");
  schema.Set("properties", Json(std::move(properties)));
  if (!required.empty()) schema.Set("required", Json(std::move(required)));
  if (!rules.ignores_unknown) schema.Set("additionalProperties", false);
  return schema;
}

Json DescribeParameter(std::string_view name, const char* where, Json schema) {
  return Json(Json::Object{{"name", Json(name)},
                           {"in", where},
                           {"required", Json(where == std::string_view("path"))},
                           {"schema", std::move(schema)}});
}

Json ParametersOf(const EndpointFacts& endpoint) {
  Json parameters = Json::MakeArray();
  for (size_t at = 0; (at = endpoint.path.find('{', at)) != endpoint.path.npos; ++at) {
    const size_t end = endpoint.path.find('}', at);
    parameters.Append(DescribeParameter(endpoint.path.substr(at + 1, end - at - 1), "path",
                                        ParseSchema(R"({"type":"string"})")));
  }
  if (endpoint.query)
    parameters.Append(
        DescribeParameter(endpoint.query->name, "query", ParseSchema(endpoint.query->schema)));
  return parameters;
}

std::span<const Api> BodiesOf(const EndpointFacts& endpoint) {
  return endpoint.body ? std::span<const Api>(&*endpoint.body, 1) : endpoint.bodies;
}

Json ResponsesOf(const EndpointFacts& endpoint) {
  const Json anything(Json::Object{{"schema", Json::MakeObject()}});
  Json media(Json::Object{{endpoint.media, anything}});
  for (const Api api : BodiesOf(endpoint)) {
    const Field* stream = FindField(api, "stream");
    if (stream && stream->read_by.Has(api)) media.Set("text/event-stream", anything);
    const Field* format = FindField(api, "encoding_format");
    if (format && format->read_by.Has(api)) media.Set("application/octet-stream", anything);
  }
  Json good(Json::Object{{"description", "The answer."}, {"content", std::move(media)}});
  const char* failure = endpoint.failure == Failure::kState ? "Unready" : "Error";
  return Json(
      Json::Object{{"200", std::move(good)}, {"default", ReferenceTo("responses", failure)}});
}

// "post_v1_chat_completions"
std::string OperationId(const EndpointFacts& endpoint) {
  std::string id;
  for (const char c : StrCat(endpoint.method, endpoint.path))
    id += std::isalnum(static_cast<unsigned char>(c))
              ? static_cast<char>(std::tolower(static_cast<unsigned char>(c)))
              : '_';
  return id;
}

Json OperationOf(const EndpointFacts& endpoint) {
  Json operation = Json::MakeObject();
  operation.Set("operationId", OperationId(endpoint));
  operation.Set("summary", endpoint.summary);
  Json parameters = ParametersOf(endpoint);
  if (!parameters.array().empty()) operation.Set("parameters", std::move(parameters));
  if (const auto apis = BodiesOf(endpoint); !apis.empty()) {
    Json::Array references;
    for (const Api api : apis) references.push_back(ReferenceTo("schemas", BodyName(api)));
    Json any = references.size() == 1 ? std::move(references[0])
                                      : Json(Json::Object{{"anyOf", Json(std::move(references))}});
    Json media(Json::Object{{"schema", std::move(any)}});
    Json content(Json::Object{{"application/json", std::move(media)}});
    operation.Set("requestBody",
                  Json(Json::Object{{"required", Json(true)}, {"content", std::move(content)}}));
  }
  operation.Set("responses", ResponsesOf(endpoint));
  return operation;
}

// Of all APIs: those of Anthropic's have no `param` and `code`.
constexpr const char* kErrorResponse = R"({
  "description": "The request was refused, or failed.",
  "content": {"application/json": {"schema": {"type": "object", "required": ["error"],
    "properties": {"error": {"type": "object", "required": ["message", "type"], "properties": {
      "message": {"type": "string"}, "type": {"type": "string"},
      "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}}}}}}})";

constexpr const char* kUnreadyResponse = R"({
  "description": "The model does not answer now.",
  "content": {"application/json": {"schema": {"type": "object", "required": ["status", "reason"],
    "properties": {"status": {"type": "string"}, "reason": {"type": "string"}}}}}})";

}  // namespace

Json OpenApiDocument(std::span<const EndpointFacts> endpoints, const FieldRules& rules,
                     const std::string& root_path) {
  Json paths = Json::MakeObject(), schemas = Json::MakeObject();
  for (const EndpointFacts& endpoint : endpoints) {
    std::string method(endpoint.method);
    for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    Json operations = paths.Find(endpoint.path) ? *paths.Find(endpoint.path) : Json::MakeObject();
    operations.Set(method, OperationOf(endpoint));
    paths.Set(endpoint.path, std::move(operations));
    for (const Api api : BodiesOf(endpoint)) schemas.Set(BodyName(api), BodySchema(api, rules));
  }
  Json document = Json::MakeObject();
  document.Set("openapi", "3.1.0");
  document.Set("info", Json(Json::Object{{"title", "Pinion"}, {"version", Version()}}));
  if (!root_path.empty())
    document.Set("servers", Json(Json::Array{Json(Json::Object{{"url", root_path}})}));
  document.Set("paths", std::move(paths));
  Json responses(Json::Object{{"Error", ParseSchema(kErrorResponse)},
                              {"Unready", ParseSchema(kUnreadyResponse)}});
  document.Set("components", Json(Json::Object{{"schemas", std::move(schemas)},
                                               {"responses", std::move(responses)}}));
  return document;
}

}  // namespace pinion
