#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/text/prefix_trie.h"
#include "engine/text/word_model.h"

namespace pinion {

// A unigram model: of all ways to cut a word into tokens, the one whose scores add up to the most.
// A character that no token is costs a fixed penalty; neighbours of them become one unknown token,
// or the tokens of their bytes. Linear in the word's length.
// Source: Kudo, Subword Regularization, arXiv:1804.10959, sec. 3.1 (Viterbi).
class Unigram : public WordModel {
 public:
  // From tokenizer.json's "model". Errors: a vocabulary that is not a list of [token, score], an
  // unknown token outside it, absurd lengths.
  static Result<Unigram> Make(const Json& model);

  // An error for a character that neither tokens nor bytes can write, if there is no unknown token.
  Status Encode(std::string_view word, std::vector<int32_t>& ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  // The best way to the end of some bytes: its last token begins at `begin`.
  struct Node {
    double score = 0;
    size_t begin = 0;
    bool reached = false, unknown = false;
  };
  void Extend(std::string_view word, size_t at, std::vector<Node>& best) const;
  Status Append(std::string_view token, std::vector<int32_t>& ids) const;

  Vocabulary vocabulary_;
  PrefixTrie tokens_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  std::optional<int32_t> unk_;
  bool byte_fallback_ = false;
  std::vector<int32_t> byte_ids_;
};

}  // namespace pinion
