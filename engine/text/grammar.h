#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// A form that an answer must have, whatever the model would like to say.
struct Grammar {
  std::string kind;  // "json" (a JSON Schema), "regex", "choice" (a JSON list of texts), "grammar"
                     // (Lark, GBNF or EBNF), "structural_tag" (JSON of structures and triggers)
  std::string text;
  bool operator==(const Grammar&) const = default;
};

// The tokens that grammars are followed by.
struct GrammarVocabulary {
  std::string file;  // a tokenizer.json, or
  // A function that makes the text of one; neither: there is no such form of this tokenizer.
  std::function<Result<std::string>()> make_tokenizer;
  size_t size = 0;               // number of logits
  std::vector<int32_t> eos_ids;  // that end an answer
};

// kUnsupported, with the way out: llguidance is not installed beside the running binary, or the
// tokenizer has no form that it reads.
Status CanFollowGrammars(const GrammarVocabulary& vocabulary);

// The memory that a helper takes for this vocabulary, about; 0 if it cannot be started at all.
uint64_t GrammarHelperBytes(const GrammarVocabulary& vocabulary);

// Follows grammars with llguidance in a process of its own, a Python: see README of engine/text.
// Requests are answered in order. Thread rule: one call at a time.
class GrammarHelper {
 public:
  // Rows of masks in a file that the caller has mapped: row i begins at byte i x MaskWords x 4.
  struct Rows {
    int fd = -1;
    size_t count = 0;
  };

  // Sends the vocabulary, whose answer is the first that Receive gives; the process gets ready
  // meanwhile.
  // `cpus`: where it may run; empty: where the calling thread may.
  static Result<std::unique_ptr<GrammarHelper>> Start(const GrammarVocabulary& vocabulary,
                                                      Rows rows, const std::vector<int>& cpus = {});
  ~GrammarHelper();

  // Never waits for the helper.
  void Send(const Json& request);
  // The next answer; unset if there is none at the deadline, NowNs() time (0: do not wait). Errors:
  // kIo if the helper is gone.
  Result<std::optional<Json>> Receive(int64_t deadline_ns);

 private:
  struct State;
  explicit GrammarHelper(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// 32-bit words of a mask for so many tokens.
constexpr size_t MaskWords(size_t vocabulary) { return (vocabulary + 31) / 32; }

// Says whether a client's grammar can be followed at a cost that others can bear. Its helper starts
// at the first check, and again after it died or took too long.
// Thread rule: one call at a time.
class GrammarChecker {
 public:
  explicit GrammarChecker(GrammarVocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  // An error says why not. kUsage: the grammar is at fault; kUnsupported: see CanFollowGrammars;
  // kIo: the helper cannot be started.
  Status Check(const Grammar& grammar);

 private:
  Status Start();

  GrammarVocabulary vocabulary_;
  std::unique_ptr<GrammarHelper> helper_;
};

}  // namespace pinion
