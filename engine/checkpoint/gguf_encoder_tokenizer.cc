// The tokenizers of encoders: WordPiece and SentencePiece's Unigram.

#include "engine/checkpoint/gguf_encoder_tokenizer.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "engine/base/base64.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr std::string_view kWordBegins = "\u2581", kContinues = "##";

// A token that a template puts around texts.
struct Mark {
  std::string text;
  int64_t id = -1;
};

// The token of the first of the keys that names one, or else that whose text is `usual`: files of
// early 2024 name none.
Result<Mark> FindMark(const Json& metadata, const GgufTokens& tokens,
                      std::initializer_list<const char*> keys, std::string_view usual) {
  for (const char* key : keys) {
    PINION_ASSIGN(std::string text, TokenAt(metadata, tokens, key));
    if (!text.empty()) return Mark{std::move(text), metadata.Find(key)->integer()};
  }
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens.text(i) == usual) return Mark{std::string(usual), static_cast<int64_t>(i)};
  return Fail(ErrorCode::kCorrupt,
              StrCat("there is no '", *keys.begin(), "' and no token '", usual, "'"));
}

Json Special(const Mark& mark, int type) {
  return JsonOf({{"SpecialToken", JsonOf({{"id", mark.text}, {"type_id", type}})}});
}

Json Sequence(const char* id, int type) {
  return JsonOf({{"Sequence", JsonOf({{"id", id}, {"type_id", type}})}});
}

struct Template {
  Mark first, last;
  bool adds_first = true, adds_last = true;
  int marks_between = 1;  // of two texts
  int second_type = 0;    // of the second text
};

Json PostProcessorOf(const Template& of) {
  Json::Array single, pair;
  if (of.adds_first) single.push_back(Special(of.first, 0));
  single.push_back(Sequence("A", 0));
  pair = single;
  for (int i = 0; i < of.marks_between; ++i) pair.push_back(Special(of.last, 0));
  pair.push_back(Sequence("B", of.second_type));
  if (of.adds_last) {
    single.push_back(Special(of.last, 0));
    pair.push_back(Special(of.last, of.second_type));
  }
  Json specials = Json::MakeObject();
  for (const Mark& mark : {of.first, of.last})
    specials.Set(mark.text, JsonOf({{"id", mark.text}, {"ids", Json::Array{Json(mark.id)}}}));
  return JsonOf({{"type", "TemplateProcessing"},
                 {"single", std::move(single)},
                 {"pair", std::move(pair)},
                 {"special_tokens", std::move(specials)}});
}

Result<Template> ReadTemplate(const Json& metadata, const GgufTokens& tokens,
                              std::string_view usual_first, std::string_view usual_last) {
  Template result;
  PINION_ASSIGN(
      result.first,
      FindMark(metadata, tokens, {"tokenizer.ggml.cls_token_id", "tokenizer.ggml.bos_token_id"},
               usual_first));
  PINION_ASSIGN(
      result.last,  // the key is spelt like that
      FindMark(metadata, tokens,
               {"tokenizer.ggml.seperator_token_id", "tokenizer.ggml.eos_token_id"}, usual_last));
  PINION_ASSIGN(result.adds_first, Optional<bool>(metadata, "tokenizer.ggml.add_bos_token", true));
  PINION_ASSIGN(result.adds_last, Optional<bool>(metadata, "tokenizer.ggml.add_eos_token", true));
  return result;
}

// Files mark the tokens that begin a word instead of those that continue one.
std::string WordPieceText(const GgufTokens& tokens, size_t id) {
  const std::string_view text = tokens.text(id);
  const int64_t kind = tokens.kind(id);
  if (text.starts_with(kWordBegins)) return std::string(text.substr(kWordBegins.size()));
  if (kind == GgufTokens::kControl || kind == GgufTokens::kUnknown) return std::string(text);
  return StrCat(kContinues, text);
}

bool HasCapital(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

Result<double> ScoreAt(const Json::Array& scores, size_t id) {
  if (scores[id].is_number()) return scores[id].number();
  return Fail(ErrorCode::kCorrupt, StrCat("the score of token ", id, " is not a number"));
}

// SentencePiece's rules of normalisation; null if the file has none.
Result<Json> PrecompiledNormalizer(const Json& metadata) {
  constexpr const char* kKey = "tokenizer.ggml.precompiled_charsmap";
  if (!metadata.Find(kKey)) return Json();
  PINION_ASSIGN(const Json::Array* values, RequireArray(metadata, kKey, 0));
  std::string bytes;
  for (const Json& value : *values) {
    if (!value.is_int() || value.integer() < -128 || value.integer() > 255)
      return Fail(ErrorCode::kCorrupt, StrCat("'", kKey, "' is not an array of bytes"));
    bytes += static_cast<char>(value.integer());
  }
  if (bytes.empty()) return Json();
  std::string text;
  AppendBase64(text, bytes);
  return JsonOf({{"type", "Precompiled"}, {"precompiled_charsmap", std::move(text)}});
}

// Whether the file asks for it or not, a run of spaces is one, as in Hugging Face's tokenizers of
// these models: what converters write of tokenizer.json says something else.
Result<Json> UnigramNormalizer(const Json& metadata) {
  PINION_ASSIGN(Json rules, PrecompiledNormalizer(metadata));
  Json::Array steps;
  if (!rules.is_null()) steps.push_back(std::move(rules));
  steps.push_back(
      JsonOf({{"type", "Replace"}, {"pattern", JsonOf({{"Regex", " {2,}"}})}, {"content", " "}}));
  return JsonOf({{"type", "Sequence"}, {"normalizers", std::move(steps)}});
}

Result<Json> UnigramVocabulary(const Json& metadata, const GgufTokens& tokens) {
  PINION_ASSIGN(const Json::Array* scores,
                RequireArray(metadata, "tokenizer.ggml.scores", tokens.size()));
  // Converters fill the vocabulary up to the embedding's rows.
  size_t count = tokens.size();
  while (count > 0 && tokens.kind(count - 1) == GgufTokens::kUnused) --count;
  Json::Array vocabulary;
  for (size_t i = 0; i < count; ++i) {
    PINION_ASSIGN(const double score, ScoreAt(*scores, i));
    vocabulary.push_back(Json::Array{Json(tokens.text(i)), Json(score)});
  }
  return Json(std::move(vocabulary));
}

bool HasBytes(const GgufTokens& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens.kind(i) == GgufTokens::kByte) return true;
  return false;
}

}  // namespace

Result<Json> GgufWordPiece(const Json& metadata, const GgufTokens& tokens) {
  PINION_ASSIGN(Template post, ReadTemplate(metadata, tokens, "[CLS]", "[SEP]"));
  // WordPiece always has both, whatever the file says.
  post.adds_first = post.adds_last = true;
  PINION_ASSIGN(const int64_t types,
                Optional<int64_t>(metadata, "tokenizer.ggml.token_type_count", int64_t{2}));
  post.second_type = types > 1 ? 1 : 0;
  PINION_ASSIGN(const Mark unknown,
                FindMark(metadata, tokens, {"tokenizer.ggml.unknown_token_id"}, "[UNK]"));
  Json::Object vocabulary;
  bool cased = false;  // which files do not state: a vocabulary of lower case has no capitals
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens.kind(i) == GgufTokens::kUnused) continue;
    cased = cased || (tokens.kind(i) == GgufTokens::kNormal && HasCapital(tokens.text(i)));
    vocabulary.emplace_back(WordPieceText(tokens, i), static_cast<int64_t>(i));
  }
  return JsonOf(
      {{"added_tokens", AddedTokensOf(tokens)},
       {"normalizer", JsonOf({{"type", "BertNormalizer"},
                              {"clean_text", true},
                              {"handle_chinese_chars", true},
                              {"strip_accents", nullptr},
                              {"lowercase", !cased}})},
       {"pre_tokenizer", JsonOf({{"type", "BertPreTokenizer"}})},
       {"post_processor", PostProcessorOf(post)},
       {"decoder",
        JsonOf({{"type", "WordPiece"}, {"prefix", std::string(kContinues)}, {"cleanup", true}})},
       {"model", JsonOf({{"type", "WordPiece"},
                         {"unk_token", unknown.text},
                         {"continuing_subword_prefix", std::string(kContinues)},
                         {"vocab", Json(std::move(vocabulary))}})}});
}

Result<Json> GgufUnigram(const Json& metadata, const GgufTokens& tokens) {
  PINION_ASSIGN(Template post, ReadTemplate(metadata, tokens, "<s>", "</s>"));
  post.marks_between = 2;
  PINION_ASSIGN(const Mark unknown,
                FindMark(metadata, tokens, {"tokenizer.ggml.unknown_token_id"}, "<unk>"));
  PINION_ASSIGN(const bool prefix,
                Optional<bool>(metadata, "tokenizer.ggml.add_space_prefix", true));
  PINION_ASSIGN(const bool trims,
                Optional<bool>(metadata, "tokenizer.ggml.remove_extra_whitespaces", true));
  PINION_ASSIGN(Json normalizer, UnigramNormalizer(metadata));
  PINION_ASSIGN(Json vocabulary, UnigramVocabulary(metadata, tokens));
  const Json metaspace = JsonOf({{"type", "Metaspace"},
                                 {"replacement", std::string(kWordBegins)},
                                 {"prepend_scheme", prefix ? "always" : "never"},
                                 {"split", true}});
  Json::Array steps{metaspace};
  if (trims) steps.insert(steps.begin(), JsonOf({{"type", "WhitespaceSplit"}}));
  return JsonOf(
      {{"added_tokens", AddedTokensOf(tokens)},
       {"normalizer", std::move(normalizer)},
       {"pre_tokenizer", JsonOf({{"type", "Sequence"}, {"pretokenizers", std::move(steps)}})},
       {"post_processor", PostProcessorOf(post)},
       {"decoder", metaspace},
       {"model", JsonOf({{"type", "Unigram"},
                         {"unk_id", unknown.id},
                         {"byte_fallback", HasBytes(tokens)},
                         {"vocab", std::move(vocabulary)}})}});
}

Result<Json> GgufMarked(const Json& metadata, const GgufTokens& tokens, const GgufMarks& marks) {
  PINION_ASSIGN(Template post, ReadTemplate(metadata, tokens, marks.first, marks.last));
  post.marks_between = marks.between;
  return PostProcessorOf(post);
}

}  // namespace pinion
