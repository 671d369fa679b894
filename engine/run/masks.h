#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/memory_file.h"
#include "engine/base/result.h"
#include "engine/text/grammar.h"

namespace pinion {

// The tokens that grammars allow next: one row of shared memory for each sequence that has a
// grammar, which a helper process fills while the engine computes the step. A helper that dies or
// takes too long fails the rows that it had, and the next grammar starts another.
// Thread rule: Await on any thread, the rest on the engine's; none of it beside another call but
// Await.
class Masks {
 public:
  static constexpr size_t kRows = 1024;
  // The longest run of forced tokens: a step computes so many about as quickly as one.
  static constexpr size_t kMostForced = 32;

  // `cpus`: where the helper may run. Nothing is started yet.
  Masks(GrammarVocabulary vocabulary, std::vector<int> cpus);
  ~Masks();
  Masks(const Masks&) = delete;
  Masks& operator=(const Masks&) = delete;

  // Whether Begin can be asked; see CanFollowGrammars.
  Status usable() const { return CanFollowGrammars(vocabulary_); }
  bool full() const { return free_.empty(); }

  // The row of a new sequence, from now on until End. Not if full(). `most_forced`: the longest run
  // of forced tokens that it can use, at most kMostForced; 0 saves the time to find them. An error:
  // the helper cannot be started.
  Result<int32_t> Begin(const Grammar& grammar, size_t most_forced);
  // The sequence has more tokens. Sent by Send.
  void Take(int32_t row, std::span<const int32_t> tokens);
  void End(int32_t row);
  void Send();

  // Takes what the helper has answered, and waits for more until `deadline_ns`, NowNs() time (0:
  // not at all) or until an answer comes.
  void Poll(int64_t deadline_ns);
  bool begun(int32_t row) const { return RowOf(row).begun; }
  // Why the row has no mask; empty: it has one, or will have.
  const std::string& failure(int32_t row) const { return RowOf(row).failure; }

  // The mask after all tokens taken, uint32 [MaskWords(vocabulary)]: see Sampler. Waits for it.
  // Empty: there is none, for failure().
  std::span<const uint32_t> Await(int32_t row);
  // The tokens that must come next because the grammar allows no others: each one's mask would have
  // a single bit. Known once Await has returned, until the next Take.
  std::span<const int32_t> forced(int32_t row) const { return RowOf(row).forced; }

 private:
  struct Row {
    uint64_t serial = 0;  // of its sequence
    size_t pending = 0;   // answers that will say more of it
    bool used = false, begun = false;
    std::string failure;
    std::vector<int32_t> forced;
  };
  // A request that is not answered: the rows that it is about, by their serials.
  using Asked = std::vector<std::pair<int32_t, uint64_t>>;

  const Row& RowOf(int32_t row) const { return rows_[static_cast<size_t>(row)]; }
  Row& RowOf(int32_t row) { return rows_[static_cast<size_t>(row)]; }
  Status EnsureHelper();
  void Ask(const Json& request, Asked asked);
  void PollLocked(int64_t deadline_ns);
  void OnAnswer(const Json& answer);
  std::vector<int32_t> TokensOf(const Json* list) const;
  void Lose(const std::string& reason);

  const GrammarVocabulary vocabulary_;
  const std::vector<int> cpus_;
  const size_t words_;
  std::unique_ptr<MemoryFile> file_;
  const uint32_t* memory_ = nullptr;  // kRows rows
  std::unique_ptr<GrammarHelper> helper_;
  std::vector<Row> rows_;
  std::vector<int32_t> free_;
  uint64_t last_serial_ = 0;
  std::deque<Asked> asked_;   // the first of a helper's is its start
  bool starting_ = false;     // the first answer is yet to come
  int64_t limit_ns_ = 0;      // by which the first of asked_ must be answered
  Json::Array takes_, ends_;  // for Send
  Asked taken_;
  std::mutex mutex_;  // of threads in Await
};

}  // namespace pinion
