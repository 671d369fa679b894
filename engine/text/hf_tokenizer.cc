#include "engine/text/hf_tokenizer.h"

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/text/tokenizer_config.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

// The component under `key`; nullptr if absent or null.
const Json* Component(const Json& object, std::string_view key) {
  const Json* component = object.Find(key);
  return component && !component->is_null() ? component : nullptr;
}

// Cuts the ends off, of the longer text first, so that all tokens are at most `most`.
void CutToFit(std::vector<Encoding>& texts, size_t most) {
  std::vector<int32_t>& first = texts.front().ids;
  if (texts.size() == 1) return first.resize(std::min(first.size(), most));
  std::vector<int32_t>& second = texts.back().ids;
  if (first.size() + second.size() <= most) return;
  const bool swap = first.size() > second.size();
  std::vector<int32_t>&shorter = swap ? second : first, &longer = swap ? first : second;
  shorter.resize(std::min(shorter.size(), most / 2));
  longer.resize(most - shorter.size());
}

class PlanStream : public TokenStream {
 public:
  PlanStream(const HfTokenizer& tokenizer, const DecoderPlan& plan, bool skip_special,
             StreamMode mode)
      : tokenizer_(tokenizer), decoder_(plan.Start(mode)), skip_special_(skip_special) {}
  std::string Push(int32_t id) override {
    if (!tokenizer_.Has(id) || (skip_special_ && tokenizer_.Skips(id))) return {};
    return decoder_.Push(tokenizer_.DecodingText(id));
  }
  std::string Finish() override { return decoder_.Finish(); }
  std::unique_ptr<TokenStream> Clone() const override {
    return std::make_unique<PlanStream>(*this);
  }

 private:
  const HfTokenizer& tokenizer_;
  TokenDecoder decoder_;
  bool skip_special_;
};

}  // namespace

Result<std::unique_ptr<HfTokenizer>> HfTokenizer::Make(const Json& tokenizer_json,
                                                       const Json& tokenizer_config) {
  if (!tokenizer_json.is_object())
    return Fail(ErrorCode::kCorrupt,
                StrCat("the tokenizer is ", tokenizer_json.type_name(), ", want an object"));
  const Json* model = Component(tokenizer_json, "model");
  PINION_ASSIGN(std::unique_ptr<const WordModel> words, MakeWordModel(model ? *model : Json()));
  std::unique_ptr<HfTokenizer> tokenizer(new HfTokenizer(std::move(words)));
  PINION_TRY(tokenizer->ReadPipeline(tokenizer_json));
  PINION_TRY(tokenizer->ReadAddedTokens(tokenizer_json));
  PINION_TRY(ReadSpecialTokens(tokenizer_config, tokenizer->special_tokens_));
  PINION_TRY(
      ReadChatTemplates(tokenizer_config, tokenizer->chat_template_, tokenizer->tool_template_));
  return tokenizer;
}

Status HfTokenizer::ReadPipeline(const Json& tokenizer_json) {
  if (const Json* component = Component(tokenizer_json, "normalizer")) {
    PINION_ASSIGN(normalizer_, MakeNormalizer(*component));
  }
  if (const Json* component = Component(tokenizer_json, "pre_tokenizer")) {
    PINION_ASSIGN(pre_tokenizer_, MakePreTokenizer(*component));
  }
  if (const Json* component = Component(tokenizer_json, "post_processor")) {
    PINION_ASSIGN(post_processor_, MakePostProcessor(*component));
  }
  const Json* decoder = Component(tokenizer_json, "decoder");
  PINION_ASSIGN(decoder_, DecoderPlan::Make(decoder ? *decoder : Json()));
  return {};
}

Status HfTokenizer::ReadAddedTokens(const Json& tokenizer_json) {
  const Json* list = Component(tokenizer_json, "added_tokens");
  if (!list) return {};
  if (!list->is_array())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'added_tokens' is ", list->type_name(), ", want an array"));
  for (const Json& entry : list->array()) {
    PINION_ASSIGN(AddedToken token, AddedToken::Read(entry));
    if (token.content.empty()) continue;
    // If the token is in the vocabulary too, the vocabulary's id counts.
    const auto known = TokenId(token.content);
    const auto next = static_cast<int64_t>(vocabulary_size());
    PINION_ASSIGN(const int64_t stated, Optional<int64_t>(entry, "id", next));
    const int64_t id = known ? *known : stated;
    PINION_TRY(added_.Add(token.content, id));
    token.id = static_cast<int32_t>(id);
    PINION_TRY(AddToken(std::move(token)));
  }
  return {};
}

Status HfTokenizer::AddToken(AddedToken token) {
  if (token.special) special_.insert(token.content);
  if (!token.normalized) {
    raw_matcher_.Add(token, token.content);
    return {};
  }
  std::string content = SanitizeUtf8(token.content);
  if (normalizer_) PINION_TRY(normalizer_(content));
  normalized_matcher_.Add(token, content);
  if (content != token.content) normalized_texts_[token.id] = std::move(content);
  return {};
}

Result<std::vector<int32_t>> HfTokenizer::EncodeText(std::string_view text) const {
  std::vector<int32_t> ids;
  const std::string clean = SanitizeUtf8(text);
  // Raw tokens are found first, because normalisation might change their text.
  for (const auto& section : raw_matcher_.Split(clean)) {
    if (section.id)
      ids.push_back(*section.id);
    else
      PINION_TRY(EncodeSection(clean.substr(section.begin, section.end - section.begin),
                               section.begin == 0, ids));
  }
  return ids;
}

Result<std::vector<int32_t>> HfTokenizer::Encode(std::string_view text,
                                                 bool add_special_tokens) const {
  PINION_ASSIGN(std::vector<int32_t> ids, EncodeText(text));
  if (!add_special_tokens) return ids;
  std::vector<Encoding> texts(1);
  texts[0].types.resize(ids.size());
  texts[0].ids = std::move(ids);
  PINION_ASSIGN(Encoding whole, PostProcess(post_processor_, std::move(texts)));
  return std::move(whole.ids);
}

Result<Encoding> HfTokenizer::EncodeWhole(std::string_view text,
                                          std::optional<std::string_view> second,
                                          size_t max_tokens) const {
  std::vector<Encoding> texts(second ? 2 : 1);
  PINION_ASSIGN(const Encoding special, PostProcess(post_processor_, texts));
  if (special.ids.size() > max_tokens)
    return Fail(ErrorCode::kUsage, StrCat("at most ", max_tokens, " tokens are too few for the ",
                                          special.ids.size(), " special ones"));
  PINION_ASSIGN(texts[0].ids, EncodeText(text));
  if (second) {
    PINION_ASSIGN(texts[1].ids, EncodeText(*second));
  }
  CutToFit(texts, max_tokens - special.ids.size());
  for (size_t i = 0; i < texts.size(); ++i)
    texts[i].types.assign(texts[i].ids.size(), static_cast<int32_t>(i));
  PINION_ASSIGN(Encoding whole, PostProcess(post_processor_, std::move(texts)));
  if (whole.ids.size() > max_tokens)  // a template may repeat a text
    return Fail(ErrorCode::kCorrupt, StrCat("the tokenizer's template makes ", whole.ids.size(),
                                            " tokens where at most ", max_tokens, " are wanted"));
  return whole;
}

Status HfTokenizer::EncodeSection(std::string text, bool at_start,
                                  std::vector<int32_t>& ids) const {
  if (normalizer_) PINION_TRY(normalizer_(text));
  if (normalized_matcher_.empty()) return EncodeWords(std::move(text), at_start, ids);
  for (const auto& section : normalized_matcher_.Split(text)) {
    if (section.id)
      ids.push_back(*section.id);
    else
      PINION_TRY(EncodeWords(text.substr(section.begin, section.end - section.begin),
                             at_start && section.begin == 0, ids));
  }
  return {};
}

Status HfTokenizer::EncodeWords(std::string text, bool at_start, std::vector<int32_t>& ids) const {
  if (text.empty()) return {};
  std::vector<Piece> pieces;
  pieces.push_back({std::move(text), at_start});
  if (pre_tokenizer_) PINION_TRY(pre_tokenizer_(pieces));
  for (const Piece& piece : pieces) PINION_TRY(model_->Encode(piece.text, ids));
  return {};
}

std::unique_ptr<TokenStream> HfTokenizer::Stream(bool skip_special_tokens, StreamMode mode) const {
  return std::make_unique<PlanStream>(*this, decoder_, skip_special_tokens, mode);
}

std::string HfTokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  PlanStream stream(*this, decoder_, skip_special_tokens, StreamMode::kExact);
  std::string text;
  for (int32_t id : ids) text += stream.Push(id);
  return text + stream.Finish();
}

bool HfTokenizer::Has(int32_t id) const { return added_.Has(id) || model_->vocabulary().Has(id); }

std::string HfTokenizer::TokenText(int32_t id) const {
  return added_.Has(id) ? added_.Text(id) : model_->vocabulary().Text(id);
}

std::string HfTokenizer::DecodingText(int32_t id) const {
  const auto normalized = normalized_texts_.find(id);
  return normalized != normalized_texts_.end() ? normalized->second : TokenText(id);
}

std::optional<int32_t> HfTokenizer::TokenId(std::string_view token) const {
  if (const auto id = added_.Find(token)) return id;
  return model_->vocabulary().Find(token);
}

bool HfTokenizer::is_special(int32_t id) const {
  return !special_.empty() && special_.contains(TokenText(id));
}

bool HfTokenizer::Skips(int32_t id) const {
  return !special_.empty() && special_.contains(DecodingText(id));
}

size_t HfTokenizer::vocabulary_size() const {
  return std::max(added_.end_id(), model_->vocabulary().end_id());
}

}  // namespace pinion
