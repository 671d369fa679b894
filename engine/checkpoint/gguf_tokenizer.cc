#include <algorithm>
#include <unordered_map>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_encoder_tokenizer.h"
#include "engine/checkpoint/gguf_tokens.h"

namespace pinion {
namespace {

constexpr const char* kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekkenWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr const char* kO200kWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSeedWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
// DeepSeek's: numbers first, then runs of Chinese characters and kana, then words.
constexpr const char* kDeepSeekNumbers = R"(\p{N}{1,3})";
constexpr const char* kDeepSeekHan = R"([一-龥\x{3040}-ゟ゠-ヿ]+)";
constexpr const char* kDeepSeekWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// DeepSeek-V2's: ends of lines, then letters that have cases (those of a list), then marks, spaces
// at the end, Chinese characters and at last each digit.
constexpr const char* kDeepSeekLlmLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ)"
    R"(-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ)"
    R"(-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr const char* kDeepSeekLlmMarks = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr const char* kDeepSeekLlmHan = R"([一-龥ࠀ-一가-퟿]+)";
constexpr const char *kLineEnd = R"([\r\n])", *kSpacesAtEnd = R"(\s+$)", *kDigit = R"(\p{N})";
// Kimi's, whose words are without Chinese characters.
constexpr const char* kKimiWords =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A pair is [CLS] a [SEP] b [SEP], or <s> a </s></s> b </s>.
constexpr GgufMarks kModernBertMarks = {"[CLS]", "[SEP]", 1}, kRobertaMarks = {"<s>", "</s>", 2};

// A pre-tokenizer by the name that files give it (tokenizer.ggml.pre).
struct PreTokenization {
  std::string_view name;
  const char* words;                 // what splits the text; null: GPT-2's own pattern
  bool digits_apart;                 // every digit is a piece
  bool whole_words;                  // a piece that is a token needs no merging
  bool nfc;                          // text is normalised first
  bool add_bos;                      // if the file does not say
  const char* before[5] = {};        // what splits it before, in this order
  const GgufMarks* marks = nullptr;  // of an encoder
};
constexpr PreTokenization kPreTokenizations[] = {
    {"llama-bpe", kLlama3Words, false, true, false, true},
    {"llama3", kLlama3Words, false, true, false, true},
    {"llama-v3", kLlama3Words, false, true, false, true},
    {"lfm2", kLlama3Words, false, true, false, true},
    // Tekken's vocabulary with the pattern that its conversion to tokenizer.json was published with
    // (Mistral Small 3.1, Nemotron 3).
    {"pixtral", kLlama3Words, false, true, false, true},
    {"dbrx", kLlama3Words, false, false, false, false},
    {"smaug-bpe", kLlama3Words, false, false, false, false},
    {"chatglm-bpe", kLlama3Words, false, false, false, false},
    {"glm4", kLlama3Words, false, true, false, false},
    {"gpt-4o", kO200kWords, false, false, false, false},
    {"llama4", kO200kWords, false, false, false, false},
    {"minimax-m2", kO200kWords, false, false, false, false},
    {"deepseek-v3", kDeepSeekWords, false, false, false, false, {kDeepSeekNumbers, kDeepSeekHan}},
    {"deepseek-llm",
     kDigit,
     false,
     false,
     false,
     false,
     {kLineEnd, kDeepSeekLlmLetters, kDeepSeekLlmMarks, kSpacesAtEnd, kDeepSeekLlmHan}},
    {"kimi-k2", kKimiWords, false, true, false, false},
    {"hunyuan-dense", kDeepSeekWords, false, false, false, false, {kDeepSeekNumbers, kDeepSeekHan}},
    {"hunyuan", kQwen2Words, false, false, false, false},
    {"seed-coder", kSeedWords, false, false, false, false},
    {"qwen2", kQwen2Words, false, false, true, false},
    {"qwen35", kQwen35Words, false, false, true, false},
    {"falcon-h1", kLlama3Words, false, true, false, true},
    {"deepseek-r1-qwen", kQwen2Words, false, false, true, false},
    {"tekken", kTekkenWords, false, true, false, true},
    {"gpt-2", nullptr, false, false, false, false},
    {"olmo", nullptr, false, false, false, false},
    {"modern-bert", nullptr, false, false, true, true, {}, &kModernBertMarks},
    {"roberta-bpe", nullptr, false, false, false, true, {}, &kRobertaMarks},
    {"exaone4", nullptr, false, false, false, false},
    {"smollm", nullptr, true, false, false, false},
    {"starcoder", nullptr, true, false, false, false},
    {"refact", nullptr, true, false, false, false},
    {"command-r", nullptr, true, false, true, false},
};

Result<const PreTokenization*> FindPreTokenization(const Json& metadata) {
  PINION_ASSIGN(const std::string name, Require<std::string>(metadata, "tokenizer.ggml.pre"));
  std::vector<std::string> known;
  for (const PreTokenization& each : kPreTokenizations) {
    if (each.name == name) return &each;
    known.emplace_back(each.name);
  }
  return Fail(ErrorCode::kUnsupported,
              StrCat("'tokenizer.ggml.pre' is '", name, "', want one of ", Join(known, ", ")));
}

Json VocabularyOf(const GgufTokens& tokens) {
  Json::Object vocabulary;
  for (size_t i = 0; i < tokens.size(); ++i)
    vocabulary.emplace_back(tokens.text(i), static_cast<int64_t>(i));
  return Json(std::move(vocabulary));
}

// BOS before and EOS behind every text, if the file asks for them. `always`: BOS even if the file
// asks for none.
Result<Json> PostProcessor(const Json& metadata, const GgufTokens& tokens, bool add_bos,
                           bool always = false) {
  Json::Array parts{JsonOf({{"Sequence", JsonOf({{"id", "A"}})}})};
  Json specials = Json::MakeObject();
  const auto part = [&](const std::string& text, const Json& id) {
    specials.Set(text, JsonOf({{"id", text}, {"ids", Json::Array{id}}}));
    return JsonOf({{"SpecialToken", JsonOf({{"id", text}})}});
  };
  PINION_ASSIGN(const bool bos, Optional<bool>(metadata, "tokenizer.ggml.add_bos_token", add_bos));
  PINION_ASSIGN(const bool eos, Optional<bool>(metadata, "tokenizer.ggml.add_eos_token", false));
  PINION_ASSIGN(const std::string first, TokenAt(metadata, tokens, "tokenizer.ggml.bos_token_id"));
  PINION_ASSIGN(const std::string last, TokenAt(metadata, tokens, "tokenizer.ggml.eos_token_id"));
  if ((bos || always) && !first.empty())
    parts.insert(parts.begin(), part(first, *metadata.Find("tokenizer.ggml.bos_token_id")));
  if (eos && !last.empty())
    parts.push_back(part(last, *metadata.Find("tokenizer.ggml.eos_token_id")));
  return JsonOf({{"type", "TemplateProcessing"}, {"single", parts}, {"special_tokens", specials}});
}

Json ByteLevel() {
  return JsonOf({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
}

Json PreTokenizer(const PreTokenization& pre) {
  Json::Array steps;
  if (pre.digits_apart) steps.push_back(JsonOf({{"type", "Digits"}, {"individual_digits", true}}));
  const auto split = [&](const char* pattern) {
    if (pattern)
      steps.push_back(JsonOf({{"type", "Split"},
                              {"pattern", JsonOf({{"Regex", pattern}})},
                              {"behavior", "Isolated"},
                              {"invert", false}}));
  };
  for (const char* pattern : pre.before) split(pattern);
  split(pre.words);
  Json bytes = ByteLevel();
  bytes.Set("use_regex", pre.words == nullptr);
  steps.push_back(std::move(bytes));
  return JsonOf({{"type", "Sequence"}, {"pretokenizers", std::move(steps)}});
}

Result<Json> ByteLevelBpe(const Json& metadata, const GgufTokens& tokens) {
  PINION_ASSIGN(const PreTokenization* pre, FindPreTokenization(metadata));
  PINION_ASSIGN(const Json::Array* merges, RequireArray(metadata, "tokenizer.ggml.merges", 0));
  PINION_ASSIGN(Json post, pre->marks ? GgufMarked(metadata, tokens, *pre->marks)
                                      : PostProcessor(metadata, tokens, pre->add_bos));
  return JsonOf({{"added_tokens", AddedTokensOf(tokens)},
                 {"normalizer", pre->nfc ? JsonOf({{"type", "NFC"}}) : Json()},
                 {"pre_tokenizer", PreTokenizer(*pre)},
                 {"post_processor", std::move(post)},
                 {"decoder", ByteLevel()},
                 {"model", JsonOf({{"type", "BPE"},
                                   {"ignore_merges", pre->whole_words},
                                   {"vocab", VocabularyOf(tokens)},
                                   {"merges", *merges}})}});
}

// SentencePiece merges whatever pair makes the token of the highest score, so every way to cut a
// token into two tokens is a merge, the best token's first. (The order among the cuts of one token
// is that of Hugging Face's converter.)
struct Merge {
  double score;
  std::string_view left, right;
  int64_t left_id, right_id;
};

Result<Json> MergesByScore(const Json& metadata, const GgufTokens& tokens) {
  PINION_ASSIGN(const Json::Array* scores,
                RequireArray(metadata, "tokenizer.ggml.scores", tokens.size()));
  std::unordered_map<std::string_view, int64_t> ids;
  for (size_t i = 0; i < tokens.size(); ++i) ids.emplace(tokens.text(i), static_cast<int64_t>(i));
  std::vector<Merge> merges;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view text = tokens.text(i);
    if (!(*scores)[i].is_number())
      return Fail(ErrorCode::kCorrupt, StrCat("the score of token ", i, " is not a number"));
    if (tokens.kind(i) != GgufTokens::kNormal) continue;  // found whole, never put together
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = ids.find(text.substr(0, cut)), right = ids.find(text.substr(cut));
      if (left != ids.end() && right != ids.end())
        merges.push_back(
            {(*scores)[i].number(), left->first, right->first, left->second, right->second});
    }
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.left.size() != b.left.size() ? a.left.size() > b.left.size()
                                          : a.right.size() > b.right.size();
  });
  Json::Array pairs;
  for (const Merge& merge : merges)
    pairs.push_back(Json::Array{Json(merge.left), Json(merge.right)});
  return Json(std::move(pairs));
}

// Files do not say which tokens take the white space behind them. Of Phi-3's all do but those that
// other models have, too; its successors have other vocabularies.
Json SentencePieceAdded(const Json& metadata, const GgufTokens& tokens) {
  Json added = AddedTokensOf(tokens);
  const Json* architecture = metadata.Find("general.architecture");
  if (!architecture || *architecture != Json("phi3")) return added;
  for (Json& token : added.array()) {
    const std::string& text = token.Find("content")->string();
    token.Set("rstrip", text != "<unk>" && text != "<s>" && text != "<|endoftext|>");
  }
  return added;
}

// Files of Gemma 4 list their merges.
Result<Json> ListedMerges(const Json& metadata) {
  PINION_ASSIGN(const Json::Array* merges, RequireArray(metadata, "tokenizer.ggml.merges", 0));
  return Json(*merges);
}

Result<Json> SentencePieceBpe(const Json& metadata, const GgufTokens& tokens, bool merges_listed) {
  PINION_ASSIGN(const bool prefix,
                Optional<bool>(metadata, "tokenizer.ggml.add_space_prefix", !merges_listed));
  PINION_ASSIGN(Json merges,
                merges_listed ? ListedMerges(metadata) : MergesByScore(metadata, tokens));
  PINION_ASSIGN(const std::string unknown,
                TokenAt(metadata, tokens, "tokenizer.ggml.unknown_token_id"));
  // The first files of Gemma 4 ask for no BOS, without which its text is gibberish: converters have
  // been mended since, and llama.cpp heeds no file's wish (ggml-org/llama.cpp#21500).
  PINION_ASSIGN(Json post, PostProcessor(metadata, tokens, true, /*always=*/merges_listed));
  const Json space =
      JsonOf({{"type", "Replace"}, {"pattern", JsonOf({{"String", " "}})}, {"content", "▁"}});
  Json::Array normalizers{space},
      decoders{
          JsonOf({{"type", "Replace"}, {"pattern", JsonOf({{"String", "▁"}})}, {"content", " "}}),
          JsonOf({{"type", "ByteFallback"}}), JsonOf({{"type", "Fuse"}})};
  if (prefix) {
    normalizers.insert(normalizers.begin(), JsonOf({{"type", "Prepend"}, {"prepend", "▁"}}));
    decoders.push_back(JsonOf({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}));
  }
  return JsonOf({{"added_tokens", SentencePieceAdded(metadata, tokens)},
                 {"normalizer", JsonOf({{"type", "Sequence"}, {"normalizers", normalizers}})},
                 {"pre_tokenizer", nullptr},
                 {"post_processor", std::move(post)},
                 {"decoder", JsonOf({{"type", "Sequence"}, {"decoders", decoders}})},
                 {"model", JsonOf({{"type", "BPE"},
                                   {"unk_token", unknown.empty() ? Json() : Json(unknown)},
                                   {"fuse_unk", true},
                                   {"byte_fallback", true},
                                   {"vocab", VocabularyOf(tokens)},
                                   {"merges", std::move(merges)}})}});
}

Result<Json> TokenizerConfig(const Json& metadata, const GgufTokens& tokens) {
  Json config = Json::MakeObject();
  struct Role {
    const char *key, *role;
  };
  for (const Role& each : {Role{"tokenizer.ggml.bos_token_id", "bos_token"},
                           Role{"tokenizer.ggml.eos_token_id", "eos_token"},
                           Role{"tokenizer.ggml.unknown_token_id", "unk_token"},
                           Role{"tokenizer.ggml.padding_token_id", "pad_token"}}) {
    PINION_ASSIGN(const std::string text, TokenAt(metadata, tokens, each.key));
    if (!text.empty()) config.Set(each.role, text);
  }
  const Json* chat = metadata.Find("tokenizer.chat_template");
  if (const Json* tools = metadata.Find("tokenizer.chat_template.tool_use"); chat && tools)
    config.Set("chat_template", Json::Array{JsonOf({{"name", "default"}, {"template", *chat}}),
                                            JsonOf({{"name", "tool_use"}, {"template", *tools}})});
  else if (chat)
    config.Set("chat_template", *chat);
  return config;
}

}  // namespace

Result<GgufTokenizer> ReadGgufTokenizer(const GgufFile& gguf) {
  const Json& metadata = gguf.header.metadata;
  PINION_ASSIGN(const GgufTokens tokens, ReadGgufTokens(metadata));
  PINION_ASSIGN(const std::string model, Require<std::string>(metadata, "tokenizer.ggml.model"));
  GgufTokenizer result;
  if (model == "gpt2") {
    PINION_ASSIGN(result.tokenizer, ByteLevelBpe(metadata, tokens));
  } else if (model == "llama") {
    PINION_ASSIGN(result.tokenizer, SentencePieceBpe(metadata, tokens, false));
  } else if (model == "gemma4") {
    PINION_ASSIGN(result.tokenizer, SentencePieceBpe(metadata, tokens, true));
  } else if (model == "bert") {
    PINION_ASSIGN(result.tokenizer, GgufWordPiece(metadata, tokens));
  } else if (model == "t5") {
    PINION_ASSIGN(result.tokenizer, GgufUnigram(metadata, tokens));
  } else {
    return Fail(ErrorCode::kUnsupported, StrCat("'tokenizer.ggml.model' is '", model,
                                                "', want gpt2, llama, gemma4, bert or t5"));
  }
  PINION_ASSIGN(result.tokenizer_config, TokenizerConfig(metadata, tokens));
  return result;
}

}  // namespace pinion
