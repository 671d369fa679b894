// Calls written as a list of Python's, "[f(a=1, b='x'), g()]": Llama 3.2 and 4.

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/call_body.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

constexpr int kMaxNesting = 100;         // of lists and dictionaries
constexpr size_t kMostNameBytes = 1024;  // so that looking for a name's end costs little
constexpr std::string_view kPythonSpace = " \t\r\n";
constexpr std::string_view kAfterName = "(=)[]{},:'\" \t\r\n";

// How many hexadecimal digits an escape has behind this letter.
size_t EscapeDigits(char letter) {
  return letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
}

// The character that `digits` name; unset if they do not name any.
std::optional<char32_t> Hex(std::string_view digits) {
  uint32_t code = 0;
  for (const char c : digits) {
    const size_t value = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
    const bool is_digit = (c >= '0' && c <= '9') || (value >= 10 && value < 16);
    if (!is_digit || code > 0x10FFFF) return {};
    code = code * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : static_cast<int>(value));
  }
  const bool is_character = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
  return is_character ? std::optional(char32_t{code}) : std::nullopt;
}

// Appends what the escape means whose letter `text` has at `at`, and returns what follows it. As in
// Python, an unknown one keeps its backslash.
size_t Escape(std::string_view text, size_t at, std::string& dst) {
  if (at == text.size()) return at;
  constexpr std::string_view kLetters = "\\'\"nrtabfv", kMeant = "\\'\"\n\r\t\a\b\f\v";
  const char letter = text[at];
  if (const size_t i = kLetters.find(letter); i != kLetters.npos) {
    dst += kMeant[i];
    return at + 1;
  }
  if (letter == '\n') return at + 1;
  const size_t digits = EscapeDigits(letter);
  const std::string_view given = text.substr(at + 1, digits);
  const auto code = digits > 0 && given.size() == digits ? Hex(given) : std::nullopt;
  if (!code) {
    dst += '\\';
    return at;
  }
  AppendUtf8(dst, *code);
  return at + 1 + digits;
}

// Whether more text may change what the escape means whose letter is at `at`.
bool EscapeIsCut(std::string_view text, size_t at) {
  if (at >= text.size()) return true;
  const std::string_view digits = text.substr(at + 1, EscapeDigits(text[at]));
  return digits.size() < EscapeDigits(text[at]) &&
         std::all_of(digits.begin(), digits.end(),
                     [](unsigned char c) { return std::isxdigit(c) != 0; });
}

// Reads a value, which is a constant: nothing is computed. Each function returns unset at what it
// does not expect.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

  std::optional<Json> Value(int depth) {
    text_ = Trim(text_);
    if (depth == kMaxNesting || text_.empty()) return {};
    if (text_[0] == '\'' || text_[0] == '"') return String();
    if (Take("[")) return List(depth + 1);
    if (Take("{")) return Dictionary(depth + 1);
    return Constant(TakeName());
  }

  bool done() { return Trim(text_).empty(); }

 private:
  bool Take(std::string_view mark) {
    text_ = Trim(text_);
    if (!text_.starts_with(mark)) return false;
    text_.remove_prefix(mark.size());
    return true;
  }

  std::string_view TakeName() {
    text_ = Trim(text_);
    const std::string_view name = text_.substr(0, text_.find_first_of(kAfterName));
    text_.remove_prefix(name.size());
    return name;
  }

  // Takes the comma behind an item; what closes the list is left and may stand there instead.
  bool EndsItem(std::string_view close) {
    if (Take(",")) return true;
    text_ = Trim(text_);
    return text_.starts_with(close);
  }

  static std::optional<Json> Constant(std::string_view word) {
    if (word == "True") return Json(true);
    if (word == "False") return Json(false);
    if (word == "None") return Json(nullptr);
    if (word.starts_with('+')) word.remove_prefix(1);
    auto json = Json::Parse(word);  // true, false and null of JSON, too
    if (!json) return {};
    return std::move(*json);
  }

  std::optional<Json> List(int depth) {
    Json list = Json::MakeArray();
    while (!Take("]")) {
      auto value = Value(depth);
      if (!value || !EndsItem("]")) return {};
      list.Append(std::move(*value));
    }
    return list;
  }

  std::optional<Json> Dictionary(int depth) {
    Json object = Json::MakeObject();
    while (!Take("}")) {
      auto key = Value(depth);
      if (!key || !key->is_string() || !Take(":")) return {};
      auto value = Value(depth);
      if (!value || !EndsItem("}")) return {};
      object.object().emplace_back(key->string(), std::move(*value));
    }
    return object;
  }

  std::optional<Json> String() {
    const char quote = text_[0];
    std::string value;
    for (size_t at = 1; at < text_.size();) {
      if (text_[at] == quote) {
        text_.remove_prefix(at + 1);
        return Json(std::move(value));
      }
      if (text_[at] == '\\')
        at = Escape(text_, at + 1, value);
      else
        value += text_[at++];
    }
    return {};
  }

  std::string_view text_;
};

// Finds the end of a value that comes byte by byte: the comma behind it, or the bracket that closes
// what it is in.
class ValueEnd {
 public:
  // Whether the value ends before `c`.
  bool IsAt(char c) {
    if (quote_ != 0) {
      if (!std::exchange(escaped_, !escaped_ && c == '\\') && c == quote_) quote_ = 0;
      return false;
    }
    if (depth_ == 0 && kEnds.find(c) != kEnds.npos) return true;
    if (c == '\'' || c == '"') quote_ = c;
    if (kOpening.find(c) != kOpening.npos) ++depth_;
    if (kClosing.find(c) != kClosing.npos) --depth_;
    return false;
  }

 private:
  static constexpr std::string_view kOpening = "([{", kClosing = ")]}", kEnds = ",)]}";
  size_t depth_ = 0;
  char quote_ = 0;
  bool escaped_ = false;
};

class PythonBody final : public CallBody {
 public:
  explicit PythonBody(const KnownTools& tools) : tools_(tools) {}

 private:
  // kArgument: before one, or the call's end; kBehind..: before the comma, or what closes the list.
  enum class Part { kOpen, kCall, kArgument, kValue, kString, kBehindValue, kBehindCall };

  bool Step() override {
    if (part_ != Part::kString && part_ != Part::kValue) SkipSpace();
    if (empty()) return false;
    switch (part_) {
      case Part::kOpen:
        return Take("[") ? Enter(Part::kCall) : Break();
      case Part::kCall:
        return StepCall();
      case Part::kArgument:
        return StepArgument();
      case Part::kValue:
        return StepValue();
      case Part::kString:
        return StepString();
      case Part::kBehindValue:
        return EndsItem(')') ? Enter(Part::kArgument) : Break();
      case Part::kBehindCall:
        return EndsItem(']') ? Enter(Part::kCall) : Break();
    }
    return false;
  }

  bool Enter(Part part) {
    part_ = part;
    return true;
  }

  // Takes the comma behind an item; what closes the list is left and may stand there instead.
  bool EndsItem(char close) { return Take(",") || front() == close; }

  bool StepCall() {
    if (Take("]")) {
      SetDone();
      return false;
    }
    const auto name = TakeNameBefore('(');
    if (!name) return false;
    BeginCall(*name);
    ++calls_;
    return Enter(Part::kArgument);
  }

  bool StepArgument() {
    if (Take(")")) {
      EndCall();
      return Enter(Part::kBehindCall);
    }
    const auto name = TakeNameBefore('=');
    if (!name) return false;
    BeginArgument(*name);
    return Enter(Part::kValue);
  }

  // Takes a name and the mark behind it, once both have come; breaks if they are not there. Before
  // a parenthesis only tools of the request have names.
  std::optional<std::string> TakeNameBefore(char mark) {
    const size_t end = rest().find_first_of(kAfterName);
    const size_t at = std::min(rest().find_first_not_of(kPythonSpace, end), rest().size());
    if (end == 0 || at > kMostNameBytes || (at < rest().size() && rest()[at] != mark)) Break();
    if (broken() || at == rest().size()) return {};
    std::string name(rest().substr(0, end));
    if (mark == '(' && !tools_.Has(name)) {
      Break();
      return {};
    }
    Skip(at + 1);
    return name;
  }

  bool StepValue() {
    if (scanned_ == 0) SkipSpace();
    if (empty()) return false;
    if (scanned_ == 0 && (front() == '\'' || front() == '"')) return BeginString();
    for (; scanned_ < rest().size(); ++scanned_)
      if (ends_.IsAt(rest()[scanned_])) return EndValue();
    return false;
  }

  bool BeginString() {
    quote_ = front();
    Skip(1);
    AddJson("\"");
    SetCertain();
    return Enter(Part::kString);
  }

  // Any but a string by itself.
  bool EndValue() {
    PythonReader reader(rest().substr(0, scanned_));
    const auto value = reader.Value(0);
    const char next = rest()[scanned_];
    if (!value || !reader.done() || (next != ',' && next != ')')) return Break();
    AddJson(value->Dump());
    SetCertain();
    Skip(std::exchange(scanned_, 0));
    ends_ = ValueEnd();
    return Enter(Part::kBehindValue);
  }

  bool StepString() {
    const char marks[] = {quote_, '\\'};
    const std::string_view text = rest();
    const size_t at = std::min(text.find_first_of({marks, 2}), text.size());
    std::string value(text.substr(0, at));
    size_t end = at;
    if (at < text.size() && text[at] == '\\' && !EscapeIsCut(text, at + 1))
      end = Escape(text, at + 1, value);
    const bool is_end = at < text.size() && text[at] == quote_;
    AddText(value);
    Skip(end + (is_end ? 1 : 0));
    if (!is_end) return end > at;
    AddJson("\"");
    return Enter(Part::kBehindValue);
  }

  bool Complete() override {
    SkipSpace();
    return done() && calls_ > 0 && empty();
  }

  bool is_between_arguments() const override {
    return part_ == Part::kArgument || part_ == Part::kBehindValue;
  }

  const KnownTools& tools_;
  Part part_ = Part::kOpen;
  size_t calls_ = 0;
  char quote_ = 0;      // of the string in progress
  size_t scanned_ = 0;  // bytes of the value in progress
  ValueEnd ends_;
};

}  // namespace

std::unique_ptr<CallBody> MakePythonBody(const KnownTools& tools) {
  return std::make_unique<PythonBody>(tools);
}

}  // namespace pinion
