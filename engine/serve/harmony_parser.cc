#include "engine/serve/harmony_parser.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr std::string_view kMessage = "<|message|>", kRecipient = "to=functions.";
// The marks that end a body: those of its end, or of the next message if that is missing.
constexpr std::string_view kEnds[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>",
                                      "<|channel|>"};
// How a header begins; an answer that begins otherwise has none.
constexpr std::string_view kHeaders[] = {"<|channel|>", "<|start|>", kMessage, "to="};
constexpr std::string_view kBlank = " \t\r\n";
constexpr size_t kMaxHeaderBytes = 1024;  // what is longer without a message is text

struct Mark {
  size_t at, size;
};

// The first mark that ends a body, or text that may yet become one, with size 0; at the end if
// neither.
Mark FindEnd(std::string_view text) {
  for (size_t at = text.find("<|"); at != std::string_view::npos; at = text.find("<|", at + 1)) {
    const std::string_view rest = text.substr(at);
    for (const std::string_view end : kEnds) {
      if (rest.starts_with(end)) return {at, end.size()};
      if (end.starts_with(rest)) return {at, 0};
    }
  }
  return {text.size() - (text.ends_with('<') ? 1 : 0), 0};
}

}  // namespace

HarmonyParser::HarmonyParser(OutputRules rules) : rules_(std::move(rules)) {}

ParsedOutput HarmonyParser::Push(std::string_view text, bool last) {
  text_ += text;
  while (Step(last)) continue;
  if (last) {
    if (in_body_ || !held().starts_with("<|")) Write(held());
    EndBody();
    past_ = text_.size();
  }
  text_.erase(0, std::exchange(past_, 0));
  if (!rules_.shows_thoughts) parsed_.reasoning.clear();
  return std::exchange(parsed_, {});
}

bool HarmonyParser::Step(bool last) {
  if (at_start_) {
    const size_t space = std::min(held().find_first_not_of(kBlank), held().size());
    const std::string_view head = held().substr(std::min(space, kMaxHeaderBytes));
    if (head.empty() && !last) return false;
    const auto begins = [&](std::string_view mark) { return head.starts_with(mark); };
    const auto may_begin = [&](std::string_view mark) { return mark.starts_with(head); };
    const bool has_header = std::any_of(std::begin(kHeaders), std::end(kHeaders), begins);
    if (!has_header && !last && std::any_of(std::begin(kHeaders), std::end(kHeaders), may_begin))
      return false;
    at_start_ = false;
    in_body_ = !has_header;
  }
  return in_body_ ? StepBody() : StepHeader();
}

bool HarmonyParser::StepHeader() {
  const size_t at = held().substr(0, kMaxHeaderBytes).find(kMessage);
  if (at == std::string_view::npos) {
    if (held().size() < kMaxHeaderBytes) return false;
    BeginBody("");
    return true;
  }
  BeginBody(held().substr(0, at));
  past_ += at + kMessage.size();
  return true;
}

void HarmonyParser::BeginBody(std::string_view header) {
  in_body_ = true;
  kind_ = header.find("analysis") != std::string_view::npos ? Kind::kThought : Kind::kText;
  const size_t recipient = header.find(kRecipient);
  if (recipient == std::string_view::npos) return;
  std::string_view name = header.substr(recipient + kRecipient.size());
  tool_ = name.substr(0, std::min(name.find_first_of(kBlank), name.find("<|")));
  kind_ = Kind::kCall;
}

bool HarmonyParser::StepBody() {
  const Mark end = FindEnd(held());
  Write(held().substr(0, end.at));
  past_ += end.at;
  if (end.size == 0) return false;
  past_ += end.size;
  EndBody();
  return true;
}

void HarmonyParser::Write(std::string_view body) {
  if (kind_ == Kind::kThought)
    parsed_.reasoning += body;
  else if (kind_ == Kind::kText)
    parsed_.content += body;
  else
    WriteCall(body);
}

void HarmonyParser::WriteCall(std::string_view body) {
  if (kind_ == Kind::kArguments) {
    const size_t bytes = json_.Take(body);
    if (!drops_) parsed_.AddArguments(body.substr(0, bytes));
    body.remove_prefix(bytes);
    if (!json_.done()) return;
    kind_ = Kind::kPast;
  }
  const size_t space = std::min(body.find_first_not_of(kBlank), body.size());
  space_ += body.substr(0, space);
  body.remove_prefix(space);
  if (body.empty()) return;
  if (kind_ == Kind::kCall && body.starts_with('{') && rules_.calls && !tool_.empty()) {
    BeginCall();
    return WriteCall(body);
  }
  (parsed_.content += std::exchange(space_, {})) += body;
  kind_ = Kind::kText;
}

void HarmonyParser::BeginCall() {
  drops_ = !rules_.parallel && calls_++ > 0;
  if (!drops_) parsed_.calls.push_back({std::exchange(tool_, {}), ""});
  space_.clear();
  json_ = JsonEnd();
  kind_ = Kind::kArguments;
}

void HarmonyParser::EndBody() {
  if (!std::exchange(in_body_, false)) return;
  // A tool without parameters may be called without arguments.
  if (kind_ == Kind::kCall) Write(rules_.calls && !tool_.empty() ? "{}" : "");
  space_.clear();
  kind_ = Kind::kText;
}

}  // namespace pinion
