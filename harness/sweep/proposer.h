#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/store/store.h"

namespace pinion::harness {

// A candidate that was measured.
struct CandidateGain {
  int id = 0;
  // Mean over the objectives of the log of its score over the baseline's; nullopt: it failed.
  std::optional<double> gain;
};

// The question of a search by proposals.
struct ProposalQuestion {
  std::vector<CandidateGain> tried;  // in the order in which they were
  std::vector<int> among;            // candidates that may be proposed
  size_t count = 0;                  // at most so many
  uint64_t seed = 0;
};

// A model of the space, which learns from measured candidates. Thread rule: one thread.
class Proposer {
 public:
  virtual ~Proposer() = default;
  // Distinct candidates of `among`, the same ones for the same question; as many as asked for, or
  // all of `among`. Errors (kFailed): its process ended, was interrupted, answered something else,
  // or did not answer in time.
  virtual Result<std::vector<int>> Propose(const ProposalQuestion& question) = 0;
};

// For how long Optuna's process may be silent, at its start or before an answer. Both take seconds;
// this leaves room for a busy machine and for Python's files on a slow disk.
inline constexpr double kProposerPatienceSeconds = 180;

// Optuna's tree-structured Parzen estimator over the settings of the candidates that can run, in a
// Python process: $PINION_PYTHON, else python3. `why_stop` ends a question (LineProcess), as
// `patience_s` without an answer does. Errors (kUnsupported): no such program, or one without
// Optuna; (kFailed): it does not answer.
Result<std::unique_ptr<Proposer>> StartTpe(const std::vector<CandidateRow>& candidates,
                                           std::function<std::string()> why_stop,
                                           double patience_s = kProposerPatienceSeconds);

}  // namespace pinion::harness
