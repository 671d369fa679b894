#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/run/masks.h"
#include "engine/sample/thought.h"
#include "engine/sched/sequence.h"

namespace pinion {

// The sequences whose output a grammar constrains: until the helper has read their grammar they are
// held here, so that no step waits for that. The grammar does not apply to reasoning before the
// output (params.thought). Thread rule: as Masks.
class Constrained {
 public:
  Constrained(GrammarVocabulary vocabulary, std::vector<int> cpus)
      : masks_(std::move(vocabulary), std::move(cpus)) {}

  // kUnsupported: this engine cannot follow grammars.
  Status Hold(std::unique_ptr<Sequence> sequence, std::shared_ptr<const Grammar> grammar);
  size_t held() const { return held_.size(); }

  // A sequence that may run, or why it cannot.
  struct ReadySequence {
    std::unique_ptr<Sequence> sequence;
    std::string error;
  };
  // In the order in which they came; `waits`: for some milliseconds if there is none yet.
  std::vector<ReadySequence> TakeReady(bool waits);
  // A held sequence; null if there is none of this id.
  std::unique_ptr<Sequence> Abort(uint64_t id);

  // Of sequences that run. The mask for the next token (any thread), empty if there is none...
  std::span<const uint32_t> Await(const Sequence& sequence) {
    return masks_.Await(sequence.mask_row);
  }
  // ... for this reason.
  const std::string& failure(const Sequence& sequence) const {
    return masks_.failure(sequence.mask_row);
  }
  // The tokens that the grammar forces to follow `token`, which has just been chosen as the
  // sequence's next one. None if the request asks for log-probabilities: each of them takes a row
  // of logits. Valid until Take.
  std::span<const int32_t> Following(const Sequence& sequence, int32_t token) const;
  // Has the mask made that follows the sequence's last tokens: the one that was chosen and the
  // `jumped` ones behind it; SendTaken starts that. Call it after every step that chose a token,
  // except the last.
  void Take(const Sequence& sequence);
  void SendTaken() { masks_.Send(); }
  // The sequence of this row has ended; nothing for -1.
  void End(int32_t row) {
    if (row < 0) return;
    thoughts_.erase(row);
    masks_.End(row);
  }

 private:
  struct WaitingSequence {
    std::unique_ptr<Sequence> sequence;  // its mask_row is set once the helper is asked
    std::shared_ptr<const Grammar> grammar;
    std::string error;
  };

  void BeginMore();
  // Whether the sequence's last token is one of its reasoning.
  bool TakeThought(const Sequence& sequence);

  Masks masks_;
  // By rows: of sequences whose reasoning has not ended or begun yet.
  std::unordered_map<int32_t, ThoughtTracker> thoughts_;
  std::deque<WaitingSequence> held_;
};

}  // namespace pinion
