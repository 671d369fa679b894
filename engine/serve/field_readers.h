#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/schema.h"

namespace pinion {

// For readers of request bodies: SDKs write null for fields that were not set, so null is absent.

inline tl::unexpected<ApiError> Bad(std::string_view param, std::string message) {
  return tl::unexpected<ApiError>(ApiError{400, std::move(message), std::string(param), ""});
}

inline bool Given(const Json& body, std::string_view key) {
  const Json* value = body.Find(key);
  return value && !value->is_null();
}

template <typename T>
ApiResult<T> Get(const Json& body, std::string_view key, T fallback) {
  auto value = Optional<T>(body, key, std::move(fallback));
  if (!value) return Bad(key, value.error().message);
  return *value;
}

// A string that must be there. `where`: the object's place in the body.
inline ApiResult<std::string> ReadString(const Json& object, const char* key,
                                         const std::string& where) {
  const Json* value = object.Find(key);
  if (value && value->is_string()) return value->string();
  const std::string param = StrCat(where, ".", key);
  return Bad(param,
             StrCat("'", param, "' is ", value ? Excerpt(*value) : "missing", ", want a string"));
}

// Texts, lists of token ids, or one of either.
ApiResult<std::vector<TextOrTokens>> ReadPrompts(const Json& body, const char* field);

// Sets the request's salt.
ApiResult<void> ReadCacheSalt(const Json& body, GenerationRequest& request);

// The text of a message's `content` in a conversation that was read.
std::string TextOfContent(const Json& content);

// `messages` and what belongs to them.
ApiResult<Conversation> ReadConversation(const Json& body);

// Which tools may be called now, of all that a body has.
struct AllowedTools {
  std::string mode;  // "auto" or "required"
  Json tools;        // the list of these, in the form of chats
};
// Reads the `mode` and `tools` of a choice of the type allowed_tools. `where`: their place in the
// body; `tools`: all of them, in the form of chats; null: none.
ApiResult<AllowedTools> ReadAllowedTools(const Json& allowed, const std::string& where,
                                         const Json* tools);
// The same for a chat's `tool_choice`; unset if it is not an object of that type.
ApiResult<std::optional<AllowedTools>> ReadAllowedChoice(const Json* choice, const Json* tools);

// Sets the request's grammar from `response_format` and its relatives.
ApiResult<void> ReadGrammar(const Json& body, GenerationRequest& request);
// The same for tools that must be called; after the conversation and ReadGrammar.
ApiResult<void> ReadToolChoice(const Json& body, GenerationRequest& request);

// Whether the choices are searched for, and how; after all other fields.
ApiResult<void> ReadBeamSearch(const Json& body, GenerationRequest& request);

}  // namespace pinion
