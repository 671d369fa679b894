#include "harness/batch/batch_file.h"

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

tl::unexpected<Error> Usage(std::string message) {
  return Fail(ErrorCode::kUsage, std::move(message));
}

}  // namespace

Result<BatchRequest> ReadBatchRequest(const Json& line) {
  BatchRequest request;
  PINION_ASSIGN(request.custom_id, Require<std::string>(line, "custom_id"));
  PINION_ASSIGN(const std::string method, Require<std::string>(line, "method"));
  PINION_ASSIGN(request.url, Require<std::string>(line, "url"));
  const Json* body = line.Find("body");
  if (request.custom_id.empty()) return Usage("'custom_id' is empty");
  if (method != "POST") return Usage(StrCat("'method' must be POST, not '", method, "'"));
  if (!request.url.starts_with("/v1/") || request.url.find_first_of(" \r\n") != std::string::npos)
    return Usage(
        StrCat("'url' must be a path such as /v1/chat/completions, not '", request.url, "'"));
  if (!body || !body->is_object()) return Usage("'body' must be an object");
  if (const Json* stream = body->Find("stream"); stream && *stream != Json(false))
    return Usage("'stream' cannot be used in a batch; leave it out");
  request.body = *body;
  return request;
}

Result<std::vector<BatchRequest>> ReadBatch(const std::vector<Json>& lines) {
  std::vector<BatchRequest> requests;
  std::set<std::string> known;
  for (size_t i = 0; i < lines.size(); ++i) {
    auto request = ReadBatchRequest(lines[i]);
    if (!request)
      return Unexpected(std::move(request).error().In(StrCat("request ", i + 1, " of the batch")));
    if (!known.insert(request->custom_id).second)
      return Usage(StrCat("request ", i + 1, " of the batch: an earlier one has the custom_id '",
                          request->custom_id, "' as well; give each its own"));
    requests.push_back(std::move(*request));
  }
  return requests;
}

Json BatchLine(const std::string& custom_id, const BatchOutcome& outcome) {
  const Json* id = outcome.body.is_object() ? outcome.body.Find("id") : nullptr;
  Json response, error;
  if (outcome.status > 0)
    response = Json::Object{
        {"status_code", outcome.status}, {"request_id", id ? *id : Json()}, {"body", outcome.body}};
  else
    error = Json::Object{{"code", "no_answer"}, {"message", outcome.error}};
  return Json::Object{{"id", "batch_req_" + custom_id},
                      {"custom_id", custom_id},
                      {"response", std::move(response)},
                      {"error", std::move(error)}};
}

std::vector<Json> AnsweredLines(std::string_view output) {
  std::vector<Json> lines;
  while (!output.empty()) {
    const size_t end = output.find('\n');
    if (end == std::string_view::npos) break;  // the writer was killed in the middle of it
    const auto line = Json::Parse(output.substr(0, end));
    output.remove_prefix(end + 1);
    const Json* id = line ? line->Find("custom_id") : nullptr;
    const Json* response = line ? line->Find("response") : nullptr;
    if (id && id->is_string() && response && response->is_object()) lines.push_back(*line);
  }
  return lines;
}

std::set<std::string> CustomIdsOf(const std::vector<Json>& lines) {
  std::set<std::string> ids;
  for (const Json& line : lines) ids.insert(line.Find("custom_id")->string());
  return ids;
}

}  // namespace pinion::harness
