#include "engine/serve/json_call.h"

#include <algorithm>
#include <cctype>

#include "engine/base/json.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr std::string_view kJsonSpace = " \t\r\n";

// Reads tokens off a text that may end within one. After the first failure there are no more.
class HeadCursor {
 public:
  explicit HeadCursor(std::string_view text) : text_(text) {}
  CallHead::State state() const { return state_; }
  size_t at() const { return at_; }

  bool Skip(char c) {
    if (!Begins(c)) return false;
    ++at_;
    return true;
  }

  bool Begins(char c) {
    if (state_ != CallHead::State::kFound) return false;
    at_ = std::min(text_.find_first_not_of(kJsonSpace, at_), text_.size());
    if (at_ == text_.size()) return Fail(CallHead::State::kMore);
    return text_[at_] == c || Fail(CallHead::State::kNone);
  }

  // Empty if there is none; no string of a head is.
  std::string String() {
    if (!Begins('"')) return "";
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) {
      Fail(CallHead::State::kMore);
      return "";
    }
    const auto json = Json::Parse(text_.substr(at_, end + 1 - at_));
    std::string value = json ? json->string() : "";
    if (value.empty()) Fail(CallHead::State::kNone);
    at_ = end + 1;
    return value;
  }

  bool Fail(CallHead::State state) {
    state_ = state;
    return false;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
  CallHead::State state_ = CallHead::State::kFound;
};

}  // namespace

CallHead ReadCallHead(std::string_view text) {
  const bool is_long = text.size() >= kMaxCallHead;
  HeadCursor cursor(text.substr(0, kMaxCallHead));
  CallHead head;
  std::string key, last;
  if (cursor.Skip('{')) key = cursor.String();
  if (!key.empty() && key != "name") cursor.Fail(CallHead::State::kNone);
  if (cursor.Skip(':')) head.name = cursor.String();
  if (cursor.Skip(',')) last = cursor.String();
  if (!last.empty() && last != "arguments" && last != "parameters")
    cursor.Fail(CallHead::State::kNone);
  if (cursor.Skip(':')) cursor.Begins('{');
  head.bytes = cursor.at();
  head.state = cursor.state();
  if (is_long && head.state == CallHead::State::kMore) head.state = CallHead::State::kNone;
  return head;
}

CallHead ReadNamedHead(std::string_view text) {
  constexpr std::string_view kNameEnds[] = {"[CALL_ID]", "[ARGS]"};
  const size_t brace = text.substr(0, kMaxCallHead).find('{');
  CallHead head;
  if (brace == std::string_view::npos) {
    if (text.size() < kMaxCallHead) head.state = CallHead::State::kMore;
    return head;
  }
  std::string_view name = text.substr(0, brace);
  for (const std::string_view end : kNameEnds) name = name.substr(0, name.find(end));
  name = Trim(name);
  const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-.:/").find(c) != std::string_view::npos;
  });
  if (!is_name) return head;
  head.state = CallHead::State::kFound;
  head.name = name;
  head.bytes = brace;
  return head;
}

void JsonStrings::Push(char c) {
  if (!inside_) {
    inside_ = c == '"';
    return;
  }
  inside_ = escaped_ || c != '"';
  escaped_ = !escaped_ && c == '\\';
}

void JsonEnd::Push(char c) {
  if (done_) return;
  const bool in_string = strings_.inside();
  strings_.Push(c);
  if (in_string) return;
  if (c == '{' || c == '[') ++depth_;
  if (c != '}' && c != ']') return;
  done_ = depth_ <= 1;
  --depth_;
}

size_t JsonEnd::Take(std::string_view text, std::string_view mark) {
  size_t taken = 0;
  for (; taken < text.size() && !done_; ++taken) {
    const std::string_view rest = text.substr(taken, mark.size());
    if (!strings_.inside() && !mark.empty() && mark.starts_with(rest)) break;
    Push(text[taken]);
  }
  return taken;
}

size_t JsonMark::Take(std::string_view text) {
  if (mark_.empty()) return text.size();
  size_t taken = 0;
  for (; taken < text.size(); ++taken) {
    const std::string_view rest = text.substr(taken);
    found_ = !strings_.inside() && rest.starts_with(mark_);
    if (found_ || (!strings_.inside() && mark_.starts_with(rest))) break;
    strings_.Push(rest[0]);
  }
  return taken;
}

}  // namespace pinion
