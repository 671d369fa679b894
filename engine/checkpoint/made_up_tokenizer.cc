// A byte-level BPE tokenizer of any vocabulary size: the 256 bytes, merges that keep common English
// short, and pronounceable fillers up to the size wanted.

#include <algorithm>
#include <array>
#include <set>

#include "engine/base/check.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/preset.h"

namespace pinion {
namespace {

// Frequent English words, most useful first: a small vocabulary takes the beginning only.
constexpr std::string_view kWords =
    "the of and to in is that for it as was with be by on not he this are or his from at which but "
    "have an had they you were their one all we can her has there been if more when will would who "
    "so no out up into than them its about time what only some could these two may other then do "
    "first any my now such like our over even most after also many must before through back years "
    "where much your way well down should because each just those people how too little state good "
    "very make world still own see men work long get here between both life being under never day "
    "same another know while last might us great old year off come since against go came right "
    "used "
    "take three model token language computer memory thread processor number question answer story "
    "write system write please explain example hello once upon small house water light night small "
    "large different place word find again point home need set want read call found form line name "
    "change play move live mean ask show try kind hand picture turn data high follow act why men "
    "land help every near add food country plant school father keep tree start city earth eye "
    "think "
    "head stand letter mother begin open seem together next white children side feet car mile walk "
    "group important until river four carry book science room friend idea fish mountain stop once "
    "base hear horse cut sure watch color face wood main enough plain girl usual young ready above "
    "ever red list though feel talk bird soon body dog family direct pose leave song measure door "
    "product black short class wind happen complete ship area half rock order fire south problem "
    "piece told knew pass top whole king space best hour better during hundred five remember step "
    "early hold west ground interest reach fast verb sing listen six table travel less morning ten";

// Endings and pairs inside other words, after the words themselves.
constexpr std::string_view kPieces =
    "in er re on at en th es ed ing ion tion an or al ar it is le st ve ic ly ment ent ate able ou "
    "ch sh om ur ll ss ea ai ee oo ck qu ph ght ould ter ver com con pro per est ity ness ful less "
    "ous ive ist ism ial ian age ure ance ence um us el il ol ul am em im os as id ad od ir ac ec "
    "ag";

std::string Utf8(int point) {
  if (point < 0x80) return {static_cast<char>(point)};
  return {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 0x3f))};
}

// GPT-2's printable stand-ins for the 256 bytes: printable Latin-1 stands for itself, the others
// are counted up from U+0100. Source: openai/gpt-2, encoder.py, bytes_to_unicode.
std::array<std::string, 256> ByteTokens() {
  std::array<std::string, 256> tokens;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    tokens[static_cast<size_t>(byte)] = Utf8(printable ? byte : next++);
  }
  return tokens;
}

const std::string kSpace = Utf8(0x120);

// The n-th filler: a space and three made-up syllables, so that a made-up model's output at least
// looks like words. The factor is coprime to 10^6: fillers with neighbouring ids look different.
std::string Filler(uint64_t n) {
  constexpr std::string_view kConsonants = "bcdfghjklmnprstvwxyz", kVowels = "aeiou";
  constexpr uint64_t kSyllables = kConsonants.size() * kVowels.size();
  constexpr uint64_t kWordsOfThree = kSyllables * kSyllables * kSyllables;
  std::string text = kSpace;
  const auto add = [&](uint64_t syllable) {
    text += kConsonants[syllable / kVowels.size()];
    text += kVowels[syllable % kVowels.size()];
  };
  uint64_t value = n % kWordsOfThree * 618033 % kWordsOfThree;
  for (int i = 0; i < 3; ++i, value /= kSyllables) add(value % kSyllables);
  for (n /= kWordsOfThree; n > 0; n /= kSyllables) add(n % kSyllables);
  return text;
}

// Tokens by id, filled from the lowest free id up; special tokens sit where the config has them.
class Vocabulary {
 public:
  explicit Vocabulary(size_t size) : tokens_(size) {}

  bool full() const { return used_ == tokens_.size(); }
  const std::vector<std::pair<int32_t, std::string>>& specials() const { return specials_; }
  const Json& merges() const { return merges_; }

  // Does nothing if the id is taken or outside the vocabulary.
  void AddSpecialAt(int32_t id, const std::string& token) {
    const auto place = static_cast<size_t>(id);
    if (id < 0 || place >= tokens_.size() || !tokens_[place].empty() || Has(token)) return;
    Put(place, token);
    specials_.emplace_back(id, token);
  }
  void AddSpecial(const std::string& token) {
    if (!Has(token)) AddSpecialAt(static_cast<int32_t>(NextFree()), token);
  }
  void Add(const std::string& token) {
    if (!full() && !Has(token)) Put(NextFree(), token);
  }
  // The chain of merges that builds `pieces` from the left: "th", "the", ...
  void AddChain(const std::vector<std::string>& pieces) {
    std::string built = pieces[0];
    for (size_t i = 1; i < pieces.size() && !full(); ++i) {
      const std::string merged = built + pieces[i];
      if (!Has(merged)) {
        Put(NextFree(), merged);
        merges_.Append(StrCat(built, " ", pieces[i]));
      }
      built = merged;
    }
  }
  void FillUp() {
    for (uint64_t n = 0; !full(); ++n) {
      std::string filler = Filler(n);
      if (Has(filler)) continue;
      tokens_[NextFree()] = std::move(filler);
      ++used_;
    }
  }

  Json ToJson() {
    Json::Object vocab;
    vocab.reserve(tokens_.size());
    for (size_t id = 0; id < tokens_.size(); ++id)
      vocab.emplace_back(std::move(tokens_[id]), static_cast<int64_t>(id));
    return vocab;
  }

 private:
  bool Has(const std::string& token) const { return known_.contains(token); }
  size_t NextFree() {
    while (!tokens_[next_].empty()) ++next_;
    return next_;
  }
  void Put(size_t id, const std::string& token) {
    tokens_[id] = token;
    known_.insert(token);
    ++used_;
  }

  std::vector<std::string> tokens_;
  std::set<std::string> known_;  // all but the fillers, which differ among themselves anyway
  std::vector<std::pair<int32_t, std::string>> specials_;
  Json merges_ = Json::MakeArray();
  size_t next_ = 0, used_ = 0;
};

constexpr const char* kTurnBegin = "<|start|>";
constexpr const char* kTurnEnd = "<|end|>";
constexpr const char* kBos = "<s>";
constexpr const char* kEos = "</s>";

// The special token with this id; "" if there is none.
std::string SpecialAt(const Vocabulary& vocabulary, std::optional<int32_t> id) {
  for (const auto& [special, token] : vocabulary.specials())
    if (id == special) return token;
  return "";
}

void AddSpecials(const DecoderSpec& spec, Vocabulary& vocabulary) {
  constexpr size_t kMost = 16;  // a hostile list of ends must not crowd the bytes out
  for (size_t i = 0; i < std::min(kMost, spec.eos_ids.size()); ++i)
    vocabulary.AddSpecialAt(spec.eos_ids[i], i == 0   ? std::string(kEos)
                                             : i == 1 ? std::string(kTurnEnd)
                                                      : StrCat("<|end_", i, "|>"));
  if (spec.bos_id) vocabulary.AddSpecialAt(*spec.bos_id, kBos);
  vocabulary.AddSpecial(kTurnBegin);
  vocabulary.AddSpecial(kTurnEnd);
}

void AddMerges(const std::array<std::string, 256>& bytes, Vocabulary& vocabulary) {
  const auto add = [&](std::string_view words, bool with_space) {
    for (const std::string& word : Split(words, ' ')) {
      std::vector<std::string> pieces;
      if (with_space) pieces.push_back(kSpace);
      for (const char c : word) pieces.push_back(bytes[static_cast<unsigned char>(c)]);
      vocabulary.AddChain(pieces);
    }
  };
  add(kWords, true);
  add(kPieces, false);
}

Json AddedTokens(const Vocabulary& vocabulary) {
  Json added = Json::MakeArray();
  for (const auto& [id, token] : vocabulary.specials()) {
    Json entry;
    entry.Set("id", id);
    entry.Set("content", token);
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"})
      entry.Set(flag, false);
    entry.Set("special", true);
    added.Append(std::move(entry));
  }
  // Sorted by id, as in published files: loaders number the tokens that a vocabulary lacks in this
  // order (ours lacks none).
  std::sort(added.array().begin(), added.array().end(), [](const Json& a, const Json& b) {
    return a.Find("id")->integer() < b.Find("id")->integer();
  });
  return added;
}

Json Object(std::initializer_list<std::pair<std::string, Json>> items) {
  return Json::Object(items.begin(), items.end());
}

// Puts BOS in front of every text; null if the model has none.
Json PostProcessor(const std::string& bos, std::optional<int32_t> id) {
  if (bos.empty()) return nullptr;
  const Json first = Object({{"SpecialToken", Object({{"id", bos}, {"type_id", 0}})}});
  const Json a = Object({{"Sequence", Object({{"id", "A"}, {"type_id", 0}})}});
  const Json b = Object({{"Sequence", Object({{"id", "B"}, {"type_id", 1}})}});
  const Json token = Object({{"id", bos}, {"ids", Json::Array{*id}}, {"tokens", Json::Array{bos}}});
  return Object({{"type", "TemplateProcessing"},
                 {"single", Json::Array{first, a}},
                 {"pair", Json::Array{first, a, b}},
                 {"special_tokens", Object({{bos, token}})}});
}

Json ByteLevelStep() {
  return Object({{"type", "ByteLevel"},
                 {"add_prefix_space", false},
                 {"trim_offsets", true},
                 {"use_regex", true}});
}

Json Bpe(Vocabulary& vocabulary) {
  return Object({{"type", "BPE"},
                 {"dropout", nullptr},
                 {"unk_token", nullptr},
                 {"continuing_subword_prefix", nullptr},
                 {"end_of_word_suffix", nullptr},
                 {"fuse_unk", false},
                 {"byte_fallback", false},
                 {"ignore_merges", false},
                 {"vocab", vocabulary.ToJson()},
                 {"merges", vocabulary.merges()}});
}

std::string ChatTemplate(bool with_bos) {
  return StrCat(with_bos ? "{{- bos_token }}" : "", "{%- for message in messages %}{{- '",
                kTurnBegin, "' + message['role'] + '\\n' + message['content'] | trim + '", kTurnEnd,
                "\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '", kTurnBegin,
                "assistant\\n' }}{%- endif %}");
}

Json TokenizerConfig(const DecoderSpec& spec, const std::string& bos, const std::string& eos) {
  Json config = Object({{"tokenizer_class", "PreTrainedTokenizerFast"},
                        {"clean_up_tokenization_spaces", false},
                        {"model_max_length", spec.max_positions}});
  if (!bos.empty()) config.Set("bos_token", bos);
  if (!eos.empty()) config.Set("eos_token", eos);
  config.Set("chat_template", ChatTemplate(!bos.empty()));
  return config;
}

Json GenerationConfig(const Json& config) {
  Json generation = Json::MakeObject();
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (const Json* id = config.Find(key); id && !id->is_null()) generation.Set(key, *id);
  return generation;
}

}  // namespace

MadeUpTokenizer MakeUpTokenizer(const Json& config) {
  const auto spec = ReadSpec(config);
  CHECK(spec) << spec.error().message;
  CHECK(spec->vocabulary >= kSmallestMadeUpVocabulary) << spec->vocabulary;
  const auto bytes = ByteTokens();
  Vocabulary vocabulary(static_cast<size_t>(spec->vocabulary));
  AddSpecials(*spec, vocabulary);
  for (const std::string& byte : bytes) vocabulary.Add(byte);
  AddMerges(bytes, vocabulary);
  vocabulary.FillUp();

  const std::string bos = SpecialAt(vocabulary, spec->bos_id);
  const std::string eos = spec->eos_ids.empty() ? "" : SpecialAt(vocabulary, spec->eos_ids[0]);
  MadeUpTokenizer made;
  made.tokenizer = Object({{"version", "1.0"},
                           {"truncation", nullptr},
                           {"padding", nullptr},
                           {"added_tokens", AddedTokens(vocabulary)},
                           {"normalizer", nullptr},
                           {"pre_tokenizer", ByteLevelStep()},
                           {"post_processor", PostProcessor(bos, spec->bos_id)},
                           {"decoder", ByteLevelStep()},
                           {"model", Bpe(vocabulary)}});
  made.tokenizer_config = TokenizerConfig(*spec, bos, eos);
  made.generation_config = GenerationConfig(config);
  return made;
}

}  // namespace pinion
