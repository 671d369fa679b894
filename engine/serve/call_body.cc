#include "engine/serve/call_body.h"

#include <algorithm>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/strings.h"

namespace pinion {

void CallBody::Push(std::string_view text) {
  if (broken_) return;
  text_ += text;
  while (!broken_ && !done_ && Step()) continue;
  text_.erase(0, at_);
  searched_ -= std::min(searched_, std::exchange(at_, 0));
}

bool CallBody::End() { return !broken_ && Complete(); }

void CallBody::SkipSpace() {
  at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
}

bool CallBody::Break() {
  broken_ = true;
  return false;
}

bool CallBody::Take(std::string_view mark) {
  if (!rest().starts_with(mark)) return false;
  at_ += mark.size();
  return true;
}

bool CallBody::MayBecome(std::string_view mark) const {
  return rest().size() < mark.size() && mark.starts_with(rest());
}

std::optional<std::string_view> CallBody::TakeUntil(std::string_view mark) {
  const size_t found = text_.find(mark, std::max(at_, searched_));
  if (found == std::string::npos) {
    searched_ = text_.size() - HeldFor(text_, mark);
    return {};
  }
  const std::string_view taken = std::string_view(text_).substr(at_, found - at_);
  at_ = searched_ = found + mark.size();
  return taken;
}

std::optional<std::string_view> CallBody::TakeUntilAnyOf(std::string_view ends) {
  const size_t found = text_.find_first_of(ends, std::max(at_, searched_));
  searched_ = std::min(found, text_.size());
  if (found == std::string::npos) return {};
  const size_t begin = std::exchange(at_, found);
  return std::string_view(text_).substr(begin, found - begin);
}

void CallBody::BeginCall(std::string_view name) {
  given_.calls.push_back({std::string(name), "{"});
  has_arguments_ = false;
}

void CallBody::BeginArgument(std::string_view name) {
  AddJson(StrCat(std::exchange(has_arguments_, true) ? "," : "", Json(name).Dump(), ":"));
}

// Byte by byte, so that it does not matter where the text was cut.
void CallBody::AddText(std::string_view text) {
  std::string json;
  for (const char c : text) {
    const bool is_plain = static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
    const std::string quoted = is_plain ? "" : Json(std::string(1, c)).Dump();
    json +=
        is_plain ? std::string_view(&c, 1) : std::string_view(quoted).substr(1, quoted.size() - 2);
  }
  AddJson(json);
}

size_t HeldFor(std::string_view text, std::string_view mark) {
  if (mark.empty()) return 0;
  for (size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length)
    if (text.ends_with(mark.substr(0, length))) return length;
  return 0;
}

}  // namespace pinion
