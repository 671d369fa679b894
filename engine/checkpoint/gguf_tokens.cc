#include "engine/checkpoint/gguf_tokens.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// "</s>" is not among them: a model whose answers it ends names it, and Gemma has it as HTML.
constexpr std::string_view kEnds[] = {
    "<|call|>",   "<|end|>",    "<|end_of_text|>",  "<|endoftext|>", "<|eom_id|>", "<|eot_id|>",
    "<|im_end|>", "<|return|>", "<|tool_response>", "<end_of_turn>", "<turn|>",    "[EOS]",
    "[EOT]"};
// In GPT-OSS's format, whose answers <|call|> and <|return|> end, more messages may follow this.
constexpr std::string_view kEndOfMessage = "<|end|>";

bool IsEnd(const Json& text) {
  return text.is_string() &&
         std::find(std::begin(kEnds), std::end(kEnds), text.string()) != std::end(kEnds);
}

bool Holds(const Json::Array& texts, std::string_view token) {
  return std::any_of(texts.begin(), texts.end(), [token](const Json& text) {
    return text.is_string() && text.string() == token;
  });
}

}  // namespace

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

Json GgufEnds(const Json& metadata) {
  Json ids = Json::MakeArray();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_ids",
                          "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const Json* named = metadata.Find(key))
      for (const Json& id : named->is_array() ? named->array() : Json::Array{*named})
        ids.Append(id);
  const Json* tokens = metadata.Find("tokenizer.ggml.tokens");
  if (!tokens || !tokens->is_array()) return ids;
  const Json::Array& texts = tokens->array();
  const bool ends_messages = Holds(texts, "<|call|>") && Holds(texts, "<|return|>");
  for (size_t i = 0; i < texts.size(); ++i)
    if (IsEnd(texts[i]) && !(ends_messages && texts[i].string() == kEndOfMessage))
      ids.Append(static_cast<int64_t>(i));
  return ids;
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
