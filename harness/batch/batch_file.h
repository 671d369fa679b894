#pragma once

#include <set>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// A line of a batch in OpenAI's format: {"custom_id","method":"POST","url":"/v1/...","body":{...}}.
struct BatchRequest {
  std::string custom_id, url;
  Json body;  // an object, without "stream"
};

// Errors (kUsage) name the key that is wrong.
Result<BatchRequest> ReadBatchRequest(const Json& line);

// All lines of a batch. Errors (kUsage) name the line: one that cannot be used, or a custom_id that
// an earlier line has.
Result<std::vector<BatchRequest>> ReadBatch(const std::vector<Json>& lines);

// Outcome of a request. `body` is the server's answer, also if it refused; without an answer
// `status` is 0 and `error` says why.
struct BatchOutcome {
  int status = 0;
  Json body;
  std::string error;

  bool is_good() const { return status >= 200 && status < 300; }
};

// A line of the output: {"id","custom_id","response":{"status_code","request_id","body"},"error"};
// of response and error one is null.
Json BatchLine(const std::string& custom_id, const BatchOutcome& outcome);

// The lines of an output that was written before, as far as they are whole and have a response.
std::vector<Json> AnsweredLines(std::string_view output);
std::set<std::string> CustomIdsOf(const std::vector<Json>& lines);

}  // namespace pinion::harness
