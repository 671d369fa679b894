#include "engine/text/tokenizer_config.h"

#include "engine/base/strings.h"

namespace pinion {

Status ReadSpecialTokens(const Json& config, std::map<std::string, std::string>& tokens) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                          "cls_token", "mask_token"}) {
    const Json* entry = config.Find(key);
    if (!entry || entry->is_null()) continue;
    if (entry->is_object()) entry = entry->Find("content");
    if (!entry || !entry->is_string())
      return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' is neither a text nor an added token"));
    tokens.emplace(key, entry->string());
  }
  return {};
}

Result<std::optional<std::string>> ReadChatTemplate(const Json& config) {
  const Json* found = config.Find("chat_template");
  if (!found || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->string();
  if (!found->is_array())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'chat_template' is ", found->type_name(), ", want a text or a list"));
  for (const Json& entry : found->array()) {
    PINION_ASSIGN(const std::string name, Optional<std::string>(entry, "name", ""));
    if (name == "default") return Require<std::string>(entry, "template");
  }
  return std::nullopt;
}

}  // namespace pinion
