// Tokenizers from files: tokenizer.json, else vocab.json + merges.txt, else tokenizer.model.

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/text/hf_tokenizer.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/tokenizer_config.h"

namespace pinion {
namespace {

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// The parsed file of settings; null if it does not exist.
Result<Json> ParseIfThere(const std::string& path) {
  if (!Exists(path)) return Json();
  PINION_ASSIGN(const std::string text, ReadFile(path, kMaxSettingsBytes));
  auto parsed = Json::Parse(text);
  if (!parsed) return Unexpected(std::move(parsed).error().In(path));
  return parsed;
}

constexpr size_t kMaxTemplate = 4 << 20;

// transformers writes this template to a file of its own; others list it beside the usual one.
Status AddToolTemplate(const std::string& file, Json& config) {
  if (!Exists(file)) return {};
  std::optional<std::string> usual, listed;
  PINION_TRY(ReadChatTemplates(config, usual, listed));
  PINION_ASSIGN(std::string text, ReadFile(file, kMaxTemplate));
  Json::Array both{Json(Json::Object{{"name", "tool_use"}, {"template", std::move(text)}})};
  if (usual) both.push_back(Json(Json::Object{{"name", "default"}, {"template", *usual}}));
  config.Set("chat_template", std::move(both));
  return {};
}

// tokenizer_config.json, completed from the older files beside it.
Result<Json> ReadConfig(const std::string& folder) {
  PINION_ASSIGN(Json config, ParseIfThere(folder + "/tokenizer_config.json"));
  if (!config.is_object()) config = Json::MakeObject();
  PINION_ASSIGN(const Json specials, ParseIfThere(folder + "/special_tokens_map.json"));
  if (specials.is_object())
    for (const auto& [key, value] : specials.object())
      if (!config.Find(key)) config.Set(key, value);
  if (Exists(folder + "/chat_template.jinja")) {
    PINION_ASSIGN(std::string text, ReadFile(folder + "/chat_template.jinja", kMaxTemplate));
    config.Set("chat_template", std::move(text));
  }
  if (!config.Find("chat_template")) {  // where processors of several media kept it
    PINION_ASSIGN(const Json older, ParseIfThere(folder + "/chat_template.json"));
    if (const Json* text = older.Find("chat_template")) config.Set("chat_template", *text);
  }
  PINION_TRY(AddToolTemplate(folder + "/additional_chat_templates/tool_use.jinja", config));
  return config;
}

// The tokens that the older files keep apart: {"<pad>": 32000}, and the special ones.
Result<Json> OldAddedTokens(const std::string& folder, const Json& config, const Json& vocabulary) {
  Json added = Json::MakeArray();
  PINION_ASSIGN(const Json more, ParseIfThere(folder + "/added_tokens.json"));
  if (more.is_object())
    for (const auto& [content, id] : more.object())
      added.Append(Json::Object{{"content", content}, {"id", id}, {"special", false}});
  std::map<std::string, std::string> specials;
  PINION_TRY(ReadSpecialTokens(config, specials));
  for (const auto& [role, content] : specials)
    if (vocabulary.Find(content) || more.Find(content))
      added.Append(Json::Object{{"content", content}, {"special", true}, {"normalized", false}});
  if (const Json* entries = config.Find("added_tokens_decoder"); entries && entries->is_object())
    for (const auto& [id, entry] : entries->object()) {
      Json token = entry;
      PINION_ASSIGN(const int64_t number, ParseInt(id, "added token's id"));
      token.Set("id", number);
      added.Append(std::move(token));
    }
  return added;
}

// The equivalent of tokenizer.json for a GPT-2 style pair of files.
Result<Json> FromVocabAndMerges(const std::string& folder, const Json& config) {
  PINION_ASSIGN(Json vocabulary, Json::ParseFile(folder + "/vocab.json"));
  PINION_ASSIGN(const std::string merges_text, ReadFile(folder + "/merges.txt"));
  PINION_ASSIGN(const bool prefix, Optional<bool>(config, "add_prefix_space", false));
  PINION_ASSIGN(const bool add_bos, Optional<bool>(config, "add_bos_token", false));
  PINION_ASSIGN(Json added, OldAddedTokens(folder, config, vocabulary));
  Json merges = Json::MakeArray();
  for (std::string& line : Split(merges_text, '\n')) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) merges.Append(std::move(line));
  }
  Json result = Json::MakeObject();
  std::map<std::string, std::string> specials;
  PINION_TRY(ReadSpecialTokens(config, specials));
  if (add_bos && specials.contains("bos_token")) {
    const std::string& bos = specials["bos_token"];
    const Json* id = vocabulary.Find(bos);
    if (!id) return Fail(ErrorCode::kCorrupt, StrCat("bos_token '", bos, "' is not in vocab.json"));
    const Json part = Json::Object{{"SpecialToken", Json::Object{{"id", bos}}}};
    const Json text = Json::Object{{"Sequence", Json::Object{{"id", "A"}}}};
    const Json ids = Json::Object{{"ids", Json::Array{*id}}};
    result.Set("post_processor", Json::Object{{"type", "TemplateProcessing"},
                                              {"single", Json::Array{part, text}},
                                              {"special_tokens", Json::Object{{bos, ids}}}});
  }
  result.Set("model",
             Json::Object{
                 {"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", std::move(merges)}});
  result.Set("pre_tokenizer", Json::Object{{"type", "ByteLevel"}, {"add_prefix_space", prefix}});
  result.Set("decoder", Json::Object{{"type", "ByteLevel"}});
  result.Set("added_tokens", std::move(added));
  return result;
}

Result<std::unique_ptr<Tokenizer>> Load(const std::string& folder) {
  PINION_ASSIGN(const Json config, ReadConfig(folder));
  if (Exists(folder + "/tokenizer.json")) {
    PINION_ASSIGN(const Json json, Json::ParseFile(folder + "/tokenizer.json"));
    return MakeTokenizer(json, config);
  }
  if (Exists(folder + "/vocab.json") && Exists(folder + "/merges.txt")) {
    PINION_ASSIGN(const Json json, FromVocabAndMerges(folder, config));
    return MakeTokenizer(json, config);
  }
  if (Exists(folder + "/tokenizer.model"))
    return LoadSentencePiece(folder + "/tokenizer.model", config);
  return Fail(ErrorCode::kNotFound,
              "no tokenizer: want tokenizer.json, vocab.json with merges.txt, or tokenizer.model");
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& folder) {
  auto tokenizer = Load(folder);
  if (!tokenizer)
    return Unexpected(
        std::move(tokenizer).error().In(StrCat("loading the tokenizer in '", folder, "'")));
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const Json& tokenizer_json,
                                                 const Json& tokenizer_config) {
  PINION_ASSIGN(std::unique_ptr<Tokenizer> tokenizer,
                HfTokenizer::Make(tokenizer_json, tokenizer_config));
  return tokenizer;
}

}  // namespace pinion
