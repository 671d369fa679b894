#include "engine/serve/invocation.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pinion {
namespace {

constexpr Api kOfText[] = {Api::kChat, Api::kCompletions};
constexpr Api kOfEmbedders[] = {Api::kEmbeddings, Api::kRerank, Api::kScore};
constexpr Api kOfScorers[] = {Api::kRerank, Api::kScore, Api::kPooling};
constexpr Api kOfLabellers[] = {Api::kClassify, Api::kRerank, Api::kScore};
constexpr Api kOfClassifiers[] = {Api::kClassify};

// The end of the string that begins at `at`: the place of its last quote, or the text's end.
size_t EndOfString(std::string_view text, size_t at) {
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '"') return i;
    i += text[i] == '\\';
  }
  return text.size();
}

// The names of an object's own members, as they are written.
std::vector<std::string_view> Names(std::string_view object) {
  std::vector<std::string_view> names;
  size_t depth = 0;
  bool is_name = true;  // a string at depth 1 would be one
  for (size_t i = 0; i < object.size(); ++i) {
    const char c = object[i];
    if (c == '"') {
      const size_t end = EndOfString(object, i);
      if (depth == 1 && is_name) names.push_back(object.substr(i + 1, end - i - 1));
      i = end;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      depth -= depth > 0;
    } else if (depth == 1 && (c == ':' || c == ',')) {
      is_name = c == ',';
    }
  }
  return names;
}

bool Fits(Api api, const std::vector<std::string_view>& names) {
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  switch (api) {
    case Api::kChat:
      return has("messages");
    case Api::kCompletions:
      return has("prompt");
    case Api::kRerank:
      return has("query") && has("documents");
    case Api::kScore:
      return (has("queries") && (has("documents") || has("items"))) ||
             (has("text_1") && has("text_2")) || (has("data_1") && has("data_2"));
    default:
      return has("input") || has("messages");
  }
}

}  // namespace

std::span<const Api> InvokedApis(const PoolingFacts& facts) {
  if (facts.task == ModelTask::kGenerate) return kOfText;
  if (facts.task == ModelTask::kEmbed) return kOfEmbedders;
  if (!facts.scores_pairs()) return kOfClassifiers;
  return facts.labels.empty() ? std::span<const Api>(kOfScorers) : kOfLabellers;
}

std::optional<Api> InvokedApi(std::string_view body, const PoolingFacts& facts) {
  const std::vector<std::string_view> names = Names(body);
  for (const Api api : InvokedApis(facts))
    if (Fits(api, names)) return api;
  return std::nullopt;
}

const char* InvokedFields(const PoolingFacts& facts) {
  if (facts.task == ModelTask::kGenerate) return "'messages' or 'prompt'";
  if (facts.task == ModelTask::kScore && !facts.scores_pairs()) return "'input' or 'messages'";
  return "'input' or 'messages', 'query' and 'documents', or 'queries' and 'documents'";
}

}  // namespace pinion
