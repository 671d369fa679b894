#include "engine/serve/forced_parser.h"

#include <utility>

#include "engine/base/strings.h"

namespace pinion {

ForcedParser::ForcedParser(OutputRules rules) : rules_(std::move(rules)) {
  if (!rules_.thoughts) return;
  OutputRules thoughts = rules_;
  thoughts.calls = nullptr;
  thoughts_.emplace(std::move(thoughts));
}

ParsedOutput ForcedParser::Push(std::string_view text, bool last) {
  ParsedOutput parsed;
  if (thoughts_) parsed = thoughts_->Push(text, last);
  text_ += thoughts_ ? std::exchange(parsed.content, {}) : std::string(text);
  if (!last) return parsed;
  const std::string& name = rules_.forced->name;
  if (name.empty()) {
    if (auto calls = ReadCallList(text_, *rules_.tools)) parsed.calls = std::move(*calls);
    if (!rules_.parallel && parsed.calls.size() > 1) parsed.calls.resize(1);
  } else if (const auto arguments = Json::Parse(text_); arguments && arguments->is_object()) {
    parsed.calls.push_back({name, std::string(Trim(text_))});
  }
  if (parsed.calls.empty()) parsed.content = std::move(text_);
  return parsed;
}

}  // namespace pinion
