#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/sample/sampled_token.h"

namespace pinion {

// The settings of a beam search, beside its width.
struct BeamRules {
  double length_penalty = 1;  // above 0 favours long answers
  std::vector<int32_t> ends;  // tokens that end an answer
};

// One beam search, without the model: it says which beginnings of answers, the beams, go on, and is
// told the likeliest tokens behind each. As in vLLM each beam has twice as many successors as there
// are beams, of which those with an end are answers; the others' best go on, up to max_tokens. An
// answer's score is the sum of its log-probabilities over the power `length_penalty` of its tokens
// and the prompt's, without the end. Of equal ones the earlier beam and the better token go first.
class BeamSearch {
  static constexpr size_t kNone = SIZE_MAX;
  // A token behind another; kNone: behind the prompt.
  struct Node {
    size_t before = kNone;
    SampledToken token;
    int64_t at_ns = 0;
  };

 public:
  struct Options {
    size_t width = 1;
    size_t prompt_tokens = 1, max_tokens = 1;  // both at least 1
    size_t kept_top = 0;                       // alternatives of each token that the answers show
    BeamRules rules;
  };
  struct Answer {
    std::vector<SampledToken> tokens;
    std::vector<int64_t> at_ns;  // when each of them came
    bool ended = false;          // with a token of `ends`, its last
    double score = 0;
  };
  // An answer that is not written out.
  struct Found {
    size_t last = kNone;      // its last token but for `end`
    std::optional<Node> end;  // a token of `ends`
    double score = 0;
  };

  explicit BeamSearch(Options options);

  // The most bytes that a search takes, with one answer written out.
  static size_t MostBytes(size_t width, size_t max_tokens, size_t kept_top);

  // Whether no step can change what Best gives.
  bool done() const;
  size_t beams() const { return beams_.size(); }
  // Tokens that are kept: at most `width` for each step and `width` ends.
  size_t kept_tokens() const { return nodes_.size() + ended_.size(); }
  std::vector<int32_t> TokensOf(size_t beam) const;
  // The tokens that may follow each beam: the best of `top`, at least 2 * width of them, best
  // first.
  void Step(std::vector<SampledToken> behind, int64_t now_ns);
  // The best answers, best first: `width` of them, unless the vocabulary has too few tokens.
  std::vector<Found> Best() const;
  Answer WriteOut(const Found& found) const;

 private:
  struct Beam {
    size_t last = kNone;
    double total = 0;  // log-probability
  };

  bool IsEnd(int32_t token) const;
  double Score(double total, size_t tokens) const;
  double BestPossible() const;
  Node MakeNode(size_t before, const SampledToken& behind, size_t rank, int64_t now_ns) const;
  bool IsAmongBest(double score) const;
  void AddEnded(Found ended);

  Options options_;  // its ends are sorted
  std::vector<Node> nodes_;
  std::vector<Beam> beams_ = {Beam{}};  // best first
  std::vector<Found> ended_;            // the `width` best, best first
  size_t steps_ = 0;
};

}  // namespace pinion
