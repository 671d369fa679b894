#pragma once

#include <map>
#include <optional>
#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// The parts of tokenizer_config.json (or special_tokens_map.json) that a tokenizer needs; null is
// fine.

// "bos_token": "<s>" or {"content": "<s>", ...}, and its like. Existing entries are kept.
Status ReadSpecialTokens(const Json& config, std::map<std::string, std::string>& tokens);

// "chat_template": a text, or a list, in which those named "default" and "tool_use" count.
Status ReadChatTemplates(const Json& config, std::optional<std::string>& usual,
                         std::optional<std::string>& with_tools);

}  // namespace pinion
