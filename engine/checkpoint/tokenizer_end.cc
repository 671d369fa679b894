#include "engine/checkpoint/tokenizer_end.h"

#include <cstdint>
#include <map>
#include <optional>

#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/config_json.h"
#include "engine/text/tokenizer_config.h"

namespace pinion {
namespace {

// The key of added_tokens_decoder, an id as text, whose token is this one.
std::optional<int64_t> IdOf(const Json& config, const std::string& token) {
  const Json* added = config.Find("added_tokens_decoder");
  if (!added || !added->is_object()) return std::nullopt;
  for (const auto& [id, entry] : added->object()) {
    const Json* content = entry.Find("content");
    if (!content || !content->is_string() || content->string() != token) continue;
    const auto number = ParseInt(id, "an id");
    return number ? std::optional(*number) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

Status JoinTokenizerEnd(const std::string& folder, DecoderSpec& spec) {
  const auto config = ParseConfigFile(folder + "/tokenizer_config.json");
  std::map<std::string, std::string> tokens;
  if (!config || !ReadSpecialTokens(*config, tokens)) return {};
  const auto end = tokens.find("eos_token");
  if (end == tokens.end()) return {};
  const std::optional<int64_t> id = IdOf(*config, end->second);
  if (!id || *id < 0 || *id >= spec.vocabulary) return {};
  return JoinEosIds(Json(Json::Object{{"eos_token_id", *id}}), spec);
}

}  // namespace pinion
