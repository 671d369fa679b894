#include "engine/serve/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pinion {

bool BeamSearch::done() const {
  if (beams_.empty() || steps_ == options_.max_tokens) return true;
  return ended_.size() == options_.width && BestPossible() < ended_.back().score;
}

// Of all answers that begin with a beam: what follows can only lower the sum, and the score of a
// sum, which is never above 0, is best at one of the lengths that an answer may have.
double BeamSearch::BestPossible() const {
  const double total = beams_.front().total;
  return std::max(Score(total, steps_), Score(total, options_.max_tokens));
}

double BeamSearch::Score(double total, size_t tokens) const {
  return total / std::pow(static_cast<double>(options_.prompt_tokens + tokens),
                          options_.rules.length_penalty);
}

bool BeamSearch::IsEnd(int32_t token) const {
  const std::vector<int32_t>& ends = options_.rules.ends;
  return std::find(ends.begin(), ends.end(), token) != ends.end();
}

void BeamSearch::Step(std::vector<SampledToken> behind, int64_t now_ns) {
  struct Candidate {
    double total;
    size_t beam, rank;
  };
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < behind.size(); ++i) {
    const auto& top = behind[i].top;
    for (size_t rank = 0; rank < std::min(top.size(), 2 * options_.width); ++rank) {
      const double total = beams_[i].total + top[rank].second;
      if (IsEnd(top[rank].first))
        AddEnded({AddNode(beams_[i].last, behind[i], rank, now_ns), Score(total, steps_)});
      else
        candidates.push_back({total, i, rank});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.total > b.total; });
  candidates.resize(std::min(candidates.size(), options_.width));
  std::vector<Beam> next;
  for (const auto& [total, beam, rank] : candidates)
    next.push_back({AddNode(beams_[beam].last, behind[beam], rank, now_ns), total});
  beams_ = std::move(next);
  ++steps_;
}

size_t BeamSearch::AddNode(size_t before, const SampledToken& behind, size_t rank, int64_t now_ns) {
  const auto& top = behind.top;
  SampledToken token{top[rank].first, top[rank].second, {}, 0};
  token.top.assign(top.begin(),
                   top.begin() + static_cast<ptrdiff_t>(std::min(top.size(), options_.kept_top)));
  nodes_.push_back({before, std::move(token), now_ns});
  return nodes_.size() - 1;
}

void BeamSearch::AddEnded(Ended ended) {
  const auto at =
      std::upper_bound(ended_.begin(), ended_.end(), ended,
                       [](const Ended& a, const Ended& b) { return a.score > b.score; });
  ended_.insert(at, ended);
  ended_.resize(std::min(ended_.size(), options_.width));
}

std::vector<int32_t> BeamSearch::TokensOf(size_t beam) const {
  std::vector<int32_t> tokens;
  for (size_t at = beams_[beam].last; at != kNone; at = nodes_[at].before)
    tokens.push_back(nodes_[at].token.id);
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

std::vector<BeamSearch::Answer> BeamSearch::Best() const {
  std::vector<Ended> best = ended_;
  for (const Beam& beam : beams_) best.push_back({beam.last, Score(beam.total, steps_)});
  std::stable_sort(best.begin(), best.end(),
                   [](const Ended& a, const Ended& b) { return a.score > b.score; });
  best.resize(std::min(best.size(), options_.width));
  std::vector<Answer> answers;
  for (const Ended& one : best) {
    answers.push_back(AnswerAt(one.last));
    answers.back().score = one.score;
  }
  return answers;
}

BeamSearch::Answer BeamSearch::AnswerAt(size_t last) const {
  Answer answer;
  for (size_t at = last; at != kNone; at = nodes_[at].before) {
    answer.tokens.push_back(nodes_[at].token);
    answer.at_ns.push_back(nodes_[at].at_ns);
  }
  std::reverse(answer.tokens.begin(), answer.tokens.end());
  std::reverse(answer.at_ns.begin(), answer.at_ns.end());
  answer.ended = !answer.tokens.empty() && IsEnd(answer.tokens.back().id);
  return answer;
}

}  // namespace pinion
