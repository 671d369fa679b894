#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/text/word_model.h"

namespace pinion {

// Byte-pair encoding of one word: characters (or their bytes, or the unknown token) are merged pair
// by pair, the earliest learnt merge first. n log n in the word's length. Immutable; thread-safe.
// Source: Sennrich et al., Neural Machine Translation of Rare Words with Subword Units, 2016.
class Bpe : public WordModel {
 public:
  // From tokenizer.json's "model". Errors: merges of tokens that the vocabulary lacks, absurd ids.
  static Result<Bpe> Make(const Json& model);

  Status Encode(std::string_view word, std::vector<int32_t>& ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;  // of the merged token
  };
  // Open addressing: the inner loop spends its time on this look-up.
  class MergeTable {
   public:
    void Reserve(size_t count);
    void Put(int32_t left, int32_t right, Merge merge);  // the later one wins
    const Merge* Find(int32_t left, int32_t right) const;

   private:
    struct Slot {
      uint64_t key = kFree;
      Merge merge{};
    };
    static constexpr uint64_t kFree = ~uint64_t{0};  // no pair: ids are below 2^22
    size_t Index(uint64_t key) const;
    std::vector<Slot> slots_;
    int shift_ = 64;
  };

  Status ReadOptions(const Json& model);
  Status ReadMerges(const Json& model);
  Status AddMerge(std::string_view left, std::string_view right, uint32_t rank);
  // The symbols that merging starts from.
  void Characters(std::string_view word, std::vector<int32_t>& symbols) const;
  bool AppendBytes(std::string_view character, std::vector<int32_t>& symbols) const;
  void MergeAll(std::vector<int32_t>& symbols) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  bool byte_fallback_ = false, ignore_merges_ = false, fuse_unk_ = false;
  std::string prefix_, suffix_;  // of tokens that continue a word; of those that end one
  std::optional<int32_t> unk_;
  std::vector<int32_t> byte_ids_;  // ByteTokens
};

}  // namespace pinion
