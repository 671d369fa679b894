#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/http.h"
#include "engine/serve/response.h"
#include "engine/serve/schema.h"

namespace pinion {

// Writes the answer to one request in the form of its API: whole, or as the events of a stream.
// Events that are returned as a view are valid until the next call; an empty one is none. One
// thread at a time.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // The text before the parts of choice `index`. `usage`: of that choice, as in Part.
  virtual std::string_view Begin(size_t index, const Json& prompt_token_ids,
                                 const Usage& usage) = 0;
  virtual std::string_view Part(const ChoicePart& part, const Usage& usage) = 0;
  // The text behind the last part of all choices. `usage`: of the whole request.
  virtual std::string_view End(const Usage& usage) = 0;
  // Ends a stream that is under way instead.
  virtual std::string_view Fail(const ApiError& error) = 0;

  // Of Whole: its media type, and further fields of its header.
  virtual const char* media() const { return "application/json"; }
  virtual HttpFields Header(const std::vector<ChoicePart>&, const Usage&) const { return {}; }
  virtual std::string Whole(const std::vector<ChoicePart>& choices, const Usage& usage) const = 0;
  virtual std::string Error(const ApiError& error) const = 0;
};

// The writer of `request.api`.
std::unique_ptr<AnswerWriter> MakeAnswerWriter(const GenerationRequest& request, ResponseHead head);

}  // namespace pinion
