#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/serve/response.h"

namespace pinion {

// Writes the events of one stream, without a JSON tree: a server of a thousand streams does little
// else. The text returned is valid until the next call.
class EventWriter {
 public:
  explicit EventWriter(const ResponseHead& head);
  // The role, which comes first in a choice of a chat.
  // `usage`: that of its choice so far; null: not told.
  std::string_view Role(size_t index, const Json& prompt_token_ids = {},
                        const Usage* usage = nullptr);
  // Two events if the part begins calls and has arguments of theirs: clients want the first delta
  // of a call to have none.
  std::string_view Part(const ChoicePart& part, const Usage* usage = nullptr);
  // The usage alone, which comes last.
  std::string_view UsageOf(const Usage& usage);

 private:
  std::string_view OneEvent(const ChoicePart& part, const Usage* usage);
  void AppendDelta(const ChoicePart& part);
  void BeginChoice(size_t index);
  void AppendField(const char* name, const Json& value);
  std::string_view EndChoice(const Usage* usage);
  std::string_view EndEvent(std::string_view rest);

  ResponseHead head_;
  std::string event_, both_;
  size_t head_bytes_;  // of event_: the beginning of all events, up to the list of choices
};

}  // namespace pinion
