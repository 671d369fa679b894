#include "engine/text/unigram.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

// How much worse than the worst token an unknown character is, as in SentencePiece.
constexpr double kUnknownPenalty = 10;

}  // namespace

Result<Unigram> Unigram::Make(const Json& model) {
  const Json* list = model.Find("vocab");
  if (!list || !list->is_array())
    return Fail(ErrorCode::kCorrupt, "the model's 'vocab' is missing, want an array");
  Unigram unigram;
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (const Json& entry : list->array()) {
    const auto id = static_cast<int32_t>(unigram.scores_.size());
    if (!entry.is_array() || entry.array().size() != 2 || !entry.array()[0].is_string() ||
        !entry.array()[1].is_number())
      return Fail(ErrorCode::kCorrupt, StrCat("token ", id, " is not [token, score]"));
    PINION_TRY(unigram.vocabulary_.Add(entry.array()[0].string(), id));
    unigram.scores_.push_back(entry.array()[1].number());
    tokens.emplace_back(entry.array()[0].string(), id);
  }
  PINION_ASSIGN(unigram.tokens_, PrefixTrie::Make(std::move(tokens)));
  const auto worst = std::min_element(unigram.scores_.begin(), unigram.scores_.end());
  if (worst != unigram.scores_.end()) unigram.unknown_score_ = *worst - kUnknownPenalty;
  PINION_ASSIGN(unigram.byte_fallback_, Optional<bool>(model, "byte_fallback", false));
  unigram.byte_ids_ = ByteTokens(unigram.vocabulary_);
  const Json* unk = model.Find("unk_id");
  if (!unk || unk->is_null()) return unigram;
  PINION_ASSIGN(const int64_t id, Require<int64_t>(model, "unk_id"));
  if (id < 0 || id >= static_cast<int64_t>(unigram.scores_.size()))
    return Fail(ErrorCode::kCorrupt, StrCat("'unk_id' is ", id, ", want 0 to ",
                                            static_cast<int64_t>(unigram.scores_.size()) - 1));
  unigram.unk_ = static_cast<int32_t>(id);
  return unigram;
}

// Every token that begins at `at`, or the unknown one if none of them is a single character.
void Unigram::Extend(std::string_view word, size_t at, std::vector<Node>& best) const {
  const size_t character = Utf8Length(word[at]);
  const double before = best[at].score;
  const auto offer = [&](size_t end, double score, bool unknown) {
    Node& node = best[end];
    if (!node.reached || before + score > node.score)
      node = {.score = before + score, .begin = at, .reached = true, .unknown = unknown};
  };
  bool single = false;
  uint32_t node = PrefixTrie::kRoot;
  for (size_t end = at; end < word.size();) {
    node = tokens_.Child(node, word[end++]);
    if (node == PrefixTrie::kNone) break;
    const int32_t id = tokens_.Token(node);
    if (id < 0) continue;
    offer(end, scores_[static_cast<size_t>(id)], id == unk_);
    single |= end - at == character;
  }
  if (!single) offer(at + character, unknown_score_, true);
}

// The token's id; unknown text becomes its bytes, if the model has them all.
Status Unigram::Append(std::string_view token, std::vector<int32_t>& ids) const {
  if (const auto id = vocabulary_.Find(token)) {
    ids.push_back(*id);
    return {};
  }
  const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (byte_fallback_ &&
      std::all_of(token.begin(), token.end(), [&](char c) { return byte_id(c) >= 0; })) {
    for (const char c : token) ids.push_back(byte_id(c));
    return {};
  }
  if (!unk_)
    return Fail(ErrorCode::kCorrupt, StrCat("the tokenizer has no token for '", token,
                                            "' and no unknown token: take the one that the model "
                                            "was published with"));
  ids.push_back(*unk_);
  return {};
}

Status Unigram::Encode(std::string_view word, std::vector<int32_t>& ids) const {
  std::vector<Node> best(word.size() + 1);
  for (size_t at = 0; at < word.size(); at += Utf8Length(word[at])) Extend(word, at, best);
  std::vector<std::string_view> tokens;  // from the last one on
  for (size_t end = word.size(); end > 0;) {
    size_t begin = best[end].begin;
    if (unk_ && best[end].unknown)
      while (begin > 0 && best[begin].unknown) begin = best[begin].begin;
    tokens.push_back(word.substr(begin, end - begin));
    end = begin;
  }
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token)
    PINION_TRY(Append(*token, ids));
  return {};
}

}  // namespace pinion
