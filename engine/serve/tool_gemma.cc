// Gemma's calls, "call:NAME{key:value,...}": keys without quotes, strings between marks.

#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/output_format.h"

namespace pinion {
namespace {

constexpr int kMaxDepth = 100;  // of lists and objects
constexpr std::string_view kQuotes[] = {"<escape>", "<|\"|>"};

// Reads one body from its front; each function returns unset at what it does not expect.
class GemmaReader {
 public:
  explicit GemmaReader(std::string_view text) : text_(text) {}

  bool Take(std::string_view mark) {
    text_ = Trim(text_);
    if (!text_.starts_with(mark)) return false;
    text_.remove_prefix(mark.size());
    return true;
  }

  std::string_view TakeUntilAnyOf(std::string_view marks) {
    const std::string_view taken = text_.substr(0, text_.find_first_of(marks));
    text_.remove_prefix(taken.size());
    return Trim(taken);
  }

  // What follows "{".
  std::optional<Json> Object(int depth) {
    Json object = Json::MakeObject();
    if (Take("}")) return object;
    do {
      std::optional<Json> key = Quoted();
      if (!key) key = Json(TakeUntilAnyOf(":{}[],"));
      if (key->string().empty() || !Take(":")) return {};
      auto value = Value(depth);
      if (!value) return {};
      object.object().emplace_back(key->string(), std::move(*value));
    } while (Take(","));
    if (!Take("}")) return {};
    return object;
  }

  bool done() { return Trim(text_).empty(); }

 private:
  std::optional<Json> Quoted() {
    for (const std::string_view quote : kQuotes) {
      if (!Take(quote)) continue;
      const size_t end = text_.find(quote);
      if (end == std::string_view::npos) return {};
      Json value(text_.substr(0, end));
      text_.remove_prefix(end + quote.size());
      return value;
    }
    return {};
  }

  std::optional<Json> List(int depth) {
    Json list = Json::MakeArray();
    if (Take("]")) return list;
    do {
      auto value = Value(depth);
      if (!value) return {};
      list.Append(std::move(*value));
    } while (Take(","));
    if (!Take("]")) return {};
    return list;
  }

  std::optional<Json> Value(int depth) {
    if (depth == kMaxDepth) return {};
    if (auto quoted = Quoted()) return quoted;
    if (Take("{")) return Object(depth + 1);
    if (Take("[")) return List(depth + 1);
    const std::string_view word = TakeUntilAnyOf(",{}[]");
    if (word.empty()) return {};
    auto value = Json::Parse(word);
    return value ? std::move(*value) : Json(word);
  }

  std::string_view text_;
};

}  // namespace

std::optional<std::vector<ToolCall>> ReadGemmaCalls(std::string_view body, const KnownTools&) {
  GemmaReader reader(body);
  if (!reader.Take("call:")) return {};
  const std::string name(reader.TakeUntilAnyOf("{"));
  if (name.empty() || !reader.Take("{")) return {};
  const auto arguments = reader.Object(0);
  if (!arguments || !reader.done()) return {};
  return std::vector<ToolCall>{{name, arguments->Dump()}};
}

}  // namespace pinion
