#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/answer_writer.h"

namespace pinion {

// OpenAI's Responses: items of reasoning, text and calls of functions, in the order in which the
// model wrote them. In a stream every event has the next number; each item has its start, deltas
// and end, and the last event repeats the whole.
class ResponseWriter final : public AnswerWriter {
 public:
  ResponseWriter(const GenerationRequest& request, ResponseHead head);

  std::string_view Begin(size_t index, const Json& prompt_token_ids, const Usage& usage) override;
  std::string_view Part(const ChoicePart& part, const Usage& usage) override;
  std::string_view End(const Usage& usage) override;
  std::string_view Fail(const ApiError& error) override;
  std::string Whole(const std::vector<ChoicePart>& choices, const Usage& usage) const override;
  std::string Error(const ApiError& error) const override;

 private:
  enum class Kind { kNone, kReasoning, kText, kCall };

  std::string Response(const char* status, const Json::Array& output, const Usage* usage,
                       const Json& error) const;
  std::string Ended(const ChoicePart& end, const Json::Array& output, const Usage& usage) const;
  std::string ItemId(const char* prefix, size_t index) const;
  Json TextItem(Kind kind, size_t index, const char* status, Json::Array content) const;
  Json CallItem(const std::string& call_id, const ToolCall& call, size_t index,
                const char* status) const;

  void WriteEvent(const char* type, Json::Object fields);
  void WriteState(const char* type, const std::string& response);
  void WriteText(Kind kind, const std::string& text);
  void WriteCall(const ChoicePart& part, size_t i);
  void WriteOfCall(const char* type, Json::Object fields);
  void CloseCall(const char* status);
  void OpenItem(Kind kind);
  void CloseItem(const char* status);
  void WriteItem(const char* type, Json item);
  void WriteOfItem(const std::string& type, const char* key, Json value);
  void TakeLogprobs(const ChoicePart& part);

  ResponseHead head_;
  std::string settings_;  // what all states of the response repeat: members of a JSON object
  std::string events_;
  int64_t sequence_ = 0;
  Json::Array output_;       // items that have ended
  Kind open_ = Kind::kNone;  // the item in progress
  std::string text_;         // of it
  ToolCall call_;            // or the call that it is
  std::string call_id_;      // of it
  Json::Array logprobs_;     // of its tokens
  size_t told_logprobs_ = 0;
  ChoicePart last_;  // why the choice ended
};

}  // namespace pinion
