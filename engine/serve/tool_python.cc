// Calls written as a list of Python's, "[f(a=1, b='x'), g()]": Llama 3.2 and 4.

#include <cstdint>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/output_format.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

constexpr int kMaxNesting = 100;  // of lists and dictionaries
constexpr std::string_view kAfterName = "(=)[]{},:'\" \t\r\n";

// Reads one list of calls from its front; each function returns unset at what it does not expect.
// Values are constants: nothing is computed.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

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

  // What follows "(".
  std::optional<Json> Arguments() {
    Json arguments = Json::MakeObject();
    while (!Take(")")) {
      const std::string name(TakeName());
      if (name.empty() || !Take("=")) return {};
      auto value = Value(0);
      if (!value || !EndsItem(")")) return {};
      arguments.object().emplace_back(name, std::move(*value));
    }
    return arguments;
  }

  // Takes the comma behind an item; what closes the list is left and may stand there instead.
  bool EndsItem(std::string_view close) {
    if (Take(",")) return true;
    text_ = Trim(text_);
    return text_.starts_with(close);
  }

  bool done() { return Trim(text_).empty(); }

 private:
  std::optional<Json> Value(int depth) {
    text_ = Trim(text_);
    if (depth == kMaxNesting || text_.empty()) return {};
    if (text_[0] == '\'' || text_[0] == '"') return String();
    if (Take("[")) return List(depth + 1);
    if (Take("{")) return Dictionary(depth + 1);
    return Constant(TakeName());
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
        at = Escape(at + 1, value);
      else
        value += text_[at++];
    }
    return {};
  }

  // Appends what the escape means whose letter is at `at`, and returns what follows it. As Python
  // does, an unknown one keeps its backslash.
  size_t Escape(size_t at, std::string& dst) const {
    if (at == text_.size()) return at;
    constexpr std::string_view kLetters = "\\'\"nrtabfv", kMeant = "\\'\"\n\r\t\a\b\f\v";
    const char letter = text_[at];
    if (const size_t i = kLetters.find(letter); i != kLetters.npos) {
      dst += kMeant[i];
      return at + 1;
    }
    if (letter == '\n') return at + 1;
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    const auto code = digits > 0 ? Hex(at + 1, digits) : std::nullopt;
    if (!code) {
      dst += '\\';
      return at;
    }
    AppendUtf8(dst, *code);
    return at + 1 + digits;
  }

  std::optional<char32_t> Hex(size_t at, size_t digits) const {
    if (text_.size() - at < digits) return {};
    uint32_t code = 0;
    for (const char c : text_.substr(at, digits)) {
      const size_t value = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
      const bool is_digit = (c >= '0' && c <= '9') || (value >= 10 && value < 16);
      if (!is_digit || code > 0x10FFFF) return {};
      code = code * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : static_cast<int>(value));
    }
    const bool is_character = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    return is_character ? std::optional(char32_t{code}) : std::nullopt;
  }

  std::string_view text_;
};

}  // namespace

std::optional<std::vector<ToolCall>> ReadPythonCalls(std::string_view body,
                                                     const KnownTools& tools) {
  PythonReader reader(body);
  std::vector<ToolCall> calls;
  if (!reader.Take("[")) return {};
  while (!reader.Take("]")) {
    const std::string name(reader.TakeName());
    if (!tools.Has(name) || !reader.Take("(")) return {};
    const auto arguments = reader.Arguments();
    if (!arguments || !reader.EndsItem("]")) return {};
    calls.push_back({name, arguments->Dump()});
  }
  if (calls.empty() || !reader.done()) return {};
  return calls;
}

}  // namespace pinion
