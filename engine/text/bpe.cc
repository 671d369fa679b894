#include "engine/text/bpe.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "engine/base/printable.h"
#include "engine/base/strings.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

constexpr size_t kMaxMerges = size_t{1} << 24;

uint64_t Key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// A token as errors quote it: the first bytes of a long one.
std::string Shown(std::string_view token) {
  constexpr size_t kShownBytes = 80;
  size_t end = std::min(token.size(), kShownBytes);
  while (end > 0 && end < token.size() && (token[end] & 0xC0) == 0x80) --end;  // whole characters
  return Printable(token.substr(0, end)) + (end < token.size() ? "..." : "");
}

}  // namespace

void Bpe::MergeTable::Reserve(size_t count) {
  int bits = 4;
  while ((size_t{1} << bits) < count * 2) ++bits;
  slots_.assign(size_t{1} << bits, {});
  shift_ = 64 - bits;
}

// Fibonacci hashing: the high bits of a product with 2^64 / golden ratio.
size_t Bpe::MergeTable::Index(uint64_t key) const {
  return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
}

void Bpe::MergeTable::Put(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = Key(left, right);
  size_t at = Index(key);
  while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = {key, merge};
}

const Bpe::Merge* Bpe::MergeTable::Find(int32_t left, int32_t right) const {
  const uint64_t key = Key(left, right);
  for (size_t at = Index(key);; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].key == key) return &slots_[at].merge;
    if (slots_[at].key == kFree) return nullptr;
  }
}

Result<Bpe> Bpe::Make(const Json& model) {
  Bpe bpe;
  PINION_ASSIGN(bpe.vocabulary_, ReadVocabulary(model));
  bpe.byte_ids_ = ByteTokens(bpe.vocabulary_);
  PINION_TRY(bpe.ReadOptions(model));
  PINION_TRY(bpe.ReadMerges(model));
  return bpe;
}

Status Bpe::ReadOptions(const Json& model) {
  PINION_ASSIGN(byte_fallback_, Optional<bool>(model, "byte_fallback", false));
  PINION_ASSIGN(ignore_merges_, Optional<bool>(model, "ignore_merges", false));
  PINION_ASSIGN(fuse_unk_, Optional<bool>(model, "fuse_unk", false));
  PINION_ASSIGN(prefix_, Optional<std::string>(model, "continuing_subword_prefix", ""));
  PINION_ASSIGN(suffix_, Optional<std::string>(model, "end_of_word_suffix", ""));
  // `dropout` makes training noisy; encoding for inference is exact.
  const Json* unk = model.Find("unk_token");
  if (!unk || unk->is_null()) return {};
  PINION_ASSIGN(const std::string name, Require<std::string>(model, "unk_token"));
  unk_ = vocabulary_.Find(name);
  if (!unk_)
    return Fail(ErrorCode::kCorrupt,
                StrCat("unk_token '", Shown(name), "' is not in the vocabulary"));
  return {};
}

Status Bpe::ReadMerges(const Json& model) {
  const Json* merges = model.Find("merges");
  if (!merges || !merges->is_array())
    return Fail(ErrorCode::kCorrupt, "the model's 'merges' are missing, want an array");
  if (merges->array().size() > kMaxMerges)
    return Fail(ErrorCode::kCorrupt,
                StrCat(merges->array().size(), " merges, want at most ", kMaxMerges));
  merges_.Reserve(merges->array().size());
  uint32_t rank = 0;
  for (const Json& merge : merges->array()) {
    if (merge.is_string()) {
      const std::string_view pair = merge.string();
      if (rank == 0 && pair.rfind("#version", 0) == 0) continue;
      const size_t space = pair.find(' ');
      if (space == pair.npos || pair.find(' ', space + 1) != pair.npos)
        return Fail(ErrorCode::kCorrupt,
                    StrCat("merge '", Shown(pair), "' is not two tokens with a space between"));
      PINION_TRY(AddMerge(pair.substr(0, space), pair.substr(space + 1), rank++));
    } else if (merge.is_array() && merge.array().size() == 2 && merge.array()[0].is_string() &&
               merge.array()[1].is_string()) {
      PINION_TRY(AddMerge(merge.array()[0].string(), merge.array()[1].string(), rank++));
    } else {
      return Fail(ErrorCode::kCorrupt,
                  StrCat("merge ", rank, " is neither \"left right\" nor [left, right]"));
    }
  }
  return {};
}

Status Bpe::AddMerge(std::string_view left, std::string_view right, uint32_t rank) {
  const auto missing = [&](std::string_view token) {
    return Fail(ErrorCode::kCorrupt,
                StrCat("merge ", rank, " ('", Shown(left), "' + '", Shown(right), "') needs '",
                       Shown(token), "', which the vocabulary lacks"));
  };
  const auto left_id = vocabulary_.Find(left), right_id = vocabulary_.Find(right);
  if (!left_id) return missing(left);
  if (!right_id) return missing(right);
  // A token that continues a word repeats the prefix, but the merged token has it only once.
  const std::string merged = StrCat(left, right.substr(std::min(prefix_.size(), right.size())));
  const auto id = vocabulary_.Find(merged);
  if (!id) return missing(merged);
  merges_.Put(*left_id, *right_id, {rank, *id});
  return {};
}

bool Bpe::AppendBytes(std::string_view character, std::vector<int32_t>& symbols) const {
  for (char c : character)
    if (byte_ids_[static_cast<unsigned char>(c)] < 0) return false;
  for (char c : character) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  return true;
}

void Bpe::Characters(std::string_view word, std::vector<int32_t>& symbols) const {
  bool unknown = false;  // an unknown token is due, and may yet include the next
  const auto flush = [&] {
    if (std::exchange(unknown, false)) symbols.push_back(*unk_);
  };
  std::string decorated;
  for (size_t at = 0; at < word.size();) {
    const size_t length = Utf8Length(word[at]);
    std::string_view character = word.substr(at, length);
    const bool first = at == 0, last = at + length >= word.size();
    at += length;
    if ((!first && !prefix_.empty()) || (last && !suffix_.empty())) {
      decorated = StrCat(first ? "" : prefix_, character, last ? suffix_ : "");
      character = decorated;
    }
    if (const auto id = vocabulary_.Find(character)) {
      flush();
      symbols.push_back(*id);
    } else if (!(byte_fallback_ && AppendBytes(character, symbols)) && unk_) {
      if (!fuse_unk_) flush();
      unknown = true;
    }
  }
  flush();
}

void Bpe::MergeAll(std::vector<int32_t>& symbols) const {
  struct Node {
    int32_t prev, next;  // -1: none
  };
  struct Candidate {
    uint32_t rank;
    int32_t at, id;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  // A heap makes this n log n: a scan per merge would take hours over a word of a million
  // characters. Candidates that are out of date stay in the heap and are skipped when they come
  // out.
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<Node> nodes(symbols.size());
  for (int32_t i = 0; i < count; ++i)
    nodes[static_cast<size_t>(i)] = {i - 1, i + 1 < count ? i + 1 : -1};
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0) return;
    const int32_t right = nodes[static_cast<size_t>(left)].next;
    if (right < 0) return;
    const Merge* merge =
        merges_.Find(symbols[static_cast<size_t>(left)], symbols[static_cast<size_t>(right)]);
    if (merge) queue.push({merge->rank, left, merge->id});
  };
  for (int32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Node& node = nodes[static_cast<size_t>(top.at)];
    if (symbols[static_cast<size_t>(top.at)] < 0 || node.next < 0) continue;  // merged away
    const auto right = static_cast<size_t>(node.next);
    const Merge* merge = merges_.Find(symbols[static_cast<size_t>(top.at)], symbols[right]);
    if (!merge || merge->id != top.id) continue;  // one of the two has changed since
    symbols[static_cast<size_t>(top.at)] = top.id;
    symbols[right] = -1;
    node.next = nodes[right].next;
    if (node.next >= 0) nodes[static_cast<size_t>(node.next)].prev = top.at;
    consider(node.prev);
    consider(top.at);
  }
  std::erase(symbols, -1);
}

Status Bpe::Encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.empty()) return {};
  if (ignore_merges_) {
    if (const auto id = vocabulary_.Find(word)) {
      ids.push_back(*id);
      return {};
    }
  }
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  Characters(word, symbols);
  if (symbols.size() > 1) MergeAll(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  return {};
}

}  // namespace pinion
