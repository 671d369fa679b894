// ShareGPT files: conversations of people with models.

#include <algorithm>
#include <cmath>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "harness/load/conversations.h"

namespace pinion::harness {
namespace {

tl::unexpected<Error> Bad(const std::string& path, const std::string& where,
                          const std::string& what) {
  return Fail(
      ErrorCode::kCorrupt,
      StrCat(path, ", ", where, ": ", what,
             "; want ShareGPT's [{\"conversations\":[{\"from\":\"human\",\"value\":\"...\"},"
             "{\"from\":\"gpt\",\"value\":\"...\"}]}]"));
}

// A whole array, or one object per line; the second of a pair is its position in the file.
Result<std::vector<std::pair<Json, std::string>>> ReadEntries(const std::string& path) {
  PINION_ASSIGN(const std::string text, ReadFile(path));
  std::vector<std::pair<Json, std::string>> entries;
  if (const std::string_view start = Trim(text); !start.empty() && start[0] == '[') {
    auto json = Json::Parse(text);
    if (!json) return Unexpected(std::move(json).error().In(path));
    for (Json& entry : json->array())
      entries.emplace_back(std::move(entry), StrCat("entry ", entries.size() + 1));
    return entries;
  }
  const std::vector<std::string> lines = Split(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (Trim(lines[i]).empty()) continue;
    auto json = Json::Parse(lines[i]);
    if (!json) return Bad(path, StrCat("line ", i + 1), json.error().message);
    entries.emplace_back(std::move(*json), StrCat("line ", i + 1));
  }
  return entries;
}

bool IsFrom(const Json& message, std::initializer_list<const char*> names) {
  const Json* from = message.Find("from");
  if (!from) from = message.Find("role");
  return from && from->is_string() &&
         std::find(names.begin(), names.end(), from->string()) != names.end();
}

const std::string* TextOf(const Json& message) {
  const Json* value = message.Find("value");
  if (!value) value = message.Find("content");
  return value && value->is_string() ? &value->string() : nullptr;
}

size_t CountWords(const std::string& text) {
  size_t words = 0;
  bool inside = false;
  for (char letter : text) {
    const bool blank = letter == ' ' || letter == '\n' || letter == '\t';
    if (!blank && !inside) ++words;
    inside = !blank;
  }
  return words;
}

}  // namespace

Result<std::vector<Conversation>> ReadShareGpt(const std::string& path, size_t count, int turns,
                                               uint64_t seed, const std::optional<Lengths>& output,
                                               const TokenScale& scale) {
  PINION_ASSIGN(auto entries, ReadEntries(path));
  std::mt19937_64 random(seed);
  std::shuffle(entries.begin(), entries.end(), random);
  std::vector<Conversation> conversations;
  for (const auto& [entry, where] : entries) {
    if (conversations.size() >= count) break;
    const Json* messages = entry.Find("conversations");
    if (!messages) messages = entry.Find("messages");
    if (!messages || !messages->is_array())
      return Bad(path, where, "it has no list 'conversations'");
    Conversation conversation;
    const Json::Array& list = messages->array();
    for (size_t i = 0; i + 1 < list.size(); i += 2) {
      const std::string* question = TextOf(list[i]);
      const std::string* answer = TextOf(list[i + 1]);
      if (!question || !answer) return Bad(path, where, "a message has no text in 'value'");
      const bool pair = IsFrom(list[i], {"human", "user"}) &&
                        IsFrom(list[i + 1], {"gpt", "assistant", "chatgpt", "bing", "bard"});
      if (!pair || question->empty() || static_cast<int>(conversation.turns.size()) == turns) break;
      const double tokens = std::ceil(scale.per_word * static_cast<double>(CountWords(*answer)));
      conversation.turns.push_back(
          {*question, output ? output->Draw(random)
                             : static_cast<int>(std::clamp(tokens, 1.0, double{kMaxLength}))});
    }
    if (!conversation.turns.empty()) conversations.push_back(std::move(conversation));
  }
  if (conversations.empty())
    return Bad(path, StrCat(entries.size(), " entries"),
               "none begins with a question and its answer");
  return conversations;
}

}  // namespace pinion::harness
