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

Status ReadChatTemplates(const Json& config, std::optional<std::string>& usual,
                         std::optional<std::string>& with_tools) {
  const Json* found = config.Find("chat_template");
  if (!found || found->is_null()) return {};
  if (found->is_string()) {
    usual = found->string();
    return {};
  }
  if (!found->is_array())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'chat_template' is ", found->type_name(), ", want a text or a list"));
  for (const Json& entry : found->array()) {
    PINION_ASSIGN(const std::string name, Optional<std::string>(entry, "name", ""));
    for (const auto& [wanted, text] : {std::pair{"default", &usual}, {"tool_use", &with_tools}})
      if (name == wanted) {
        PINION_ASSIGN(*text, Require<std::string>(entry, "template"));
      }
  }
  return {};
}

}  // namespace pinion
