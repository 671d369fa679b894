#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/text/added_tokens.h"
#include "engine/text/decoder.h"
#include "engine/text/normalizer.h"
#include "engine/text/post_processor.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/word_model.h"

namespace pinion {

// The pipeline that tokenizer.json describes: added tokens, normalizer, added tokens again,
// pre-tokenizer, model of words, post-processor; and the decoder for the way back.
class HfTokenizer : public Tokenizer {
 public:
  static Result<std::unique_ptr<HfTokenizer>> Make(const Json& tokenizer_json,
                                                   const Json& tokenizer_config);

  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      bool add_special_tokens) const override;
  Result<Encoding> EncodeWhole(std::string_view text, std::optional<std::string_view> second,
                               size_t max_tokens) const override;
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const override;
  std::unique_ptr<TokenStream> Stream(bool skip_special_tokens, StreamMode mode) const override;
  std::string TokenText(int32_t id) const override;
  std::optional<int32_t> TokenId(std::string_view token) const override;
  bool is_special(int32_t id) const override;
  size_t vocabulary_size() const override;
  bool Has(int32_t id) const;
  // The text that decoding starts from: for added tokens that are looked for in normalised text,
  // the normalised form.
  std::string DecodingText(int32_t id) const;
  // Whether texts without special tokens lack it. The reference asks for the text that it decodes:
  // a special token that the normaliser changes stays.
  bool Skips(int32_t id) const;

 private:
  explicit HfTokenizer(std::unique_ptr<const WordModel> model) : model_(std::move(model)) {}
  Status ReadAddedTokens(const Json& tokenizer_json);
  Status AddToken(AddedToken token);
  Status ReadPipeline(const Json& tokenizer_json);
  // Without special tokens of the post-processor.
  Result<std::vector<int32_t>> EncodeText(std::string_view text) const;
  Status EncodeSection(std::string text, bool at_start, std::vector<int32_t>& ids) const;
  Status EncodeWords(std::string text, bool at_start, std::vector<int32_t>& ids) const;

  std::unique_ptr<const WordModel> model_;
  Vocabulary added_;
  std::unordered_set<std::string> special_;
  std::unordered_map<int32_t, std::string> normalized_texts_;  // of added tokens, if they differ
  AddedTokenMatcher raw_matcher_, normalized_matcher_;
  Normalizer normalizer_;         // empty: none
  PreTokenizer pre_tokenizer_;    // empty: none
  PostProcessor post_processor_;  // empty: none
  DecoderPlan decoder_;
};

}  // namespace pinion
