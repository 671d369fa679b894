#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/text/prefix_trie.h"
#include "engine/text/word_model.h"

namespace pinion {

// WordPiece as in BERT: from left to right the longest token that fits, behind the first one with a
// prefix ("##"). A word that cannot be written to its end, or is too long, is one unknown token.
// Source: Devlin et al., BERT, arXiv:1810.04805, and its reference tokenizer.
class WordPiece : public WordModel {
 public:
  // From tokenizer.json's "model". Errors: a missing vocabulary or unknown token, absurd ids and
  // lengths.
  static Result<WordPiece> Make(const Json& model);

  Status Encode(std::string_view word, std::vector<int32_t>& ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  PrefixTrie tokens_;
  uint32_t inside_ = PrefixTrie::kRoot;  // where tokens that continue a word begin
  bool continues_ = true;                // some token continues a word
  int32_t unk_ = 0;
  size_t max_characters_ = 100;  // of a word
};

}  // namespace pinion
