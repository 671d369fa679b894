#include "engine/checkpoint/gguf_tokens.h"

#include "engine/base/strings.h"

namespace pinion {

Result<const Json::Array*> RequireArray(const Json& metadata, const char* key, size_t size) {
  const Json* found = metadata.Find(key);
  if (!found || !found->is_array())
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' is missing or no array"));
  if (size != 0 && found->array().size() != size)
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' has ", found->array().size(),
                                            " entries, want one for each of ", size, " tokens"));
  return &found->array();
}

Result<GgufTokens> ReadGgufTokens(const Json& metadata) {
  GgufTokens tokens;
  PINION_ASSIGN(tokens.texts, RequireArray(metadata, "tokenizer.ggml.tokens", 0));
  PINION_ASSIGN(tokens.kinds, RequireArray(metadata, "tokenizer.ggml.token_type", tokens.size()));
  for (size_t i = 0; i < tokens.size(); ++i)
    if (!(*tokens.texts)[i].is_string() || !(*tokens.kinds)[i].is_int())
      return Fail(ErrorCode::kCorrupt,
                  StrCat("token ", i, " is not a text with a whole-number type"));
  return tokens;
}

Json AddedTokensOf(const GgufTokens& tokens) {
  Json added = Json::MakeArray();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t kind = tokens.kind(i);
    if (kind != GgufTokens::kUnknown && kind != GgufTokens::kControl &&
        kind != GgufTokens::kUserDefined)
      continue;
    added.Append(JsonOf({{"id", static_cast<int64_t>(i)},
                         {"content", (*tokens.texts)[i]},
                         {"special", kind != GgufTokens::kUserDefined},
                         {"normalized", false}}));
  }
  return added;
}

Result<std::string> TokenAt(const Json& metadata, const GgufTokens& tokens, const char* key) {
  PINION_ASSIGN(const int64_t id, Optional<int64_t>(metadata, key, -1));
  if (id == -1) return std::string();
  if (id < 0 || id >= static_cast<int64_t>(tokens.size()))
    return Fail(ErrorCode::kCorrupt,
                StrCat("'", key, "' is ", id, ", want 0 to ", tokens.size() - 1));
  return tokens.text(static_cast<size_t>(id));
}

}  // namespace pinion
