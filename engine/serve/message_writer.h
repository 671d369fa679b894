#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/answer_writer.h"

namespace pinion {

// {"type":"error","error":{"type","message"}}
Json MessagesError(const ApiError& error);

// Anthropic's Messages: blocks of thinking, text and calls of tools, in the order in which the
// model wrote them. Of a stream each block has its start, deltas and stop.
class MessageWriter final : public AnswerWriter {
 public:
  explicit MessageWriter(ResponseHead head) : head_(std::move(head)) {}

  std::string_view Begin(size_t index, const Json& prompt_token_ids, const Usage& usage) override;
  std::string_view Part(const ChoicePart& part, const Usage& usage) override;
  std::string_view End(const Usage& usage) override;
  std::string_view Fail(const ApiError& error) override;
  std::string Whole(const std::vector<ChoicePart>& choices, const Usage& usage) const override;
  std::string Error(const ApiError& error) const override;

 private:
  enum class Block { kNone, kThinking, kText, kCall };

  Json Head(Json::Array content, const ChoicePart* end, const Usage& usage) const;
  Json Call(const ChoicePart& part, size_t i, Json input) const;
  void WriteEvent(const char* type, Json::Object fields);
  void WriteText(Block block, const std::string& text);
  void WriteCall(const ChoicePart& part, size_t i);
  void CloseBlock();

  ResponseHead head_;
  std::string events_;
  Block open_ = Block::kNone;
  int64_t blocks_ = 0;  // that have ended
  ChoicePart last_;     // why the choice ended
};

}  // namespace pinion
