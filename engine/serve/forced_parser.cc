#include "engine/serve/forced_parser.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"

namespace pinion {
namespace {

size_t SpaceBefore(std::string_view text) {
  return std::min(text.find_first_not_of(" \t\r\n"), text.size());
}

}  // namespace

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
  for (bool moves = true; moves;) {
    const Part part = part_;
    const size_t size = text_.size();
    Step(parsed);
    moves = part_ != part || text_.size() != size;
  }
  if (last) End(parsed);
  return parsed;
}

void ForcedParser::Step(ParsedOutput& parsed) {
  switch (part_) {
    case Part::kStart:
      return StepStart(parsed);
    case Part::kArguments:
    case Part::kRest: {
      const size_t bytes = json_.Take(text_);
      if (part_ == Part::kArguments) parsed.AddArguments(std::string_view(text_).substr(0, bytes));
      text_.erase(0, bytes);
      if (!json_.done()) return;
      const bool is_object = part_ == Part::kArguments && rules_.forced->name.empty();
      part_ = is_object ? Part::kRest : rules_.parallel ? Part::kBetween : Part::kDone;
      json_ = JsonEnd(1);
      return;
    }
    case Part::kBetween:
      return StepBetween();
    case Part::kHead:
      return StepHead(0, parsed);
    case Part::kDone:
      return text_.clear();  // the grammar has white space there
    case Part::kPlain:
      return;
  }
}

void ForcedParser::StepStart(ParsedOutput& parsed) {
  const std::string& name = rules_.forced->name;
  const size_t at = SpaceBefore(text_);
  if (at == text_.size()) return;
  if (text_[at] != (name.empty() ? '[' : '{'))
    part_ = Part::kPlain;
  else if (name.empty())
    StepHead(at + 1, parsed);
  else
    Begin(name, at, parsed);
}

// The head of a call is to begin at `at`.
void ForcedParser::StepHead(size_t at, ParsedOutput& parsed) {
  CallHead head = ReadCallHead(std::string_view(text_).substr(at));
  if (head.state == CallHead::State::kFound)
    Begin(std::move(head.name), at + head.bytes, parsed);
  else if (head.state == CallHead::State::kNone)
    part_ = part_ == Part::kStart ? Part::kPlain : Part::kDone;
}

void ForcedParser::StepBetween() {
  text_.erase(0, SpaceBefore(text_));
  if (text_.empty()) return;
  part_ = rules_.forced->name.empty() && text_[0] == ',' ? Part::kHead : Part::kDone;
  text_.erase(0, 1);
}

// The arguments begin behind `bytes`.
void ForcedParser::Begin(std::string name, size_t bytes, ParsedOutput& parsed) {
  parsed.calls.push_back({std::move(name), ""});
  text_.erase(0, bytes);
  json_ = JsonEnd();
  part_ = Part::kArguments;
}

void ForcedParser::End(ParsedOutput& parsed) {
  const bool is_list = rules_.forced->name.empty();
  if (part_ == Part::kHead || (part_ == Part::kStart && is_list)) {
    const size_t open = part_ == Part::kStart ? std::min(SpaceBefore(text_) + 1, text_.size()) : 0;
    CallHead head = ReadCallHead(std::string_view(text_).substr(open));
    if (head.state == CallHead::State::kMore && !head.name.empty())
      return Begin(std::move(head.name), text_.size(), parsed);
  }
  if (part_ != Part::kStart && part_ != Part::kPlain) return;
  if (is_list)
    if (auto calls = ReadCallList(text_, *rules_.tools)) parsed.calls = std::move(*calls);
  if (!rules_.parallel && parsed.calls.size() > 1) parsed.calls.resize(1);
  if (parsed.calls.empty()) parsed.content = std::move(text_);
}

}  // namespace pinion
