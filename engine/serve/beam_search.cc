#include "engine/serve/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pinion {

BeamSearch::BeamSearch(Options options) : options_(std::move(options)) {
  std::sort(options_.rules.ends.begin(), options_.rules.ends.end());
}

size_t BeamSearch::MostBytes(size_t width, size_t max_tokens, size_t kept_top) {
  // A list that grows has a copy of twice its size beside it; alternatives are on the heap, whose
  // blocks have 16 bytes of their own.
  const size_t top_bytes =
      kept_top > 0 ? kept_top * sizeof(decltype(SampledToken::top)::value_type) + 16 : 0;
  const size_t node_bytes = 3 * sizeof(Node) + top_bytes;
  const size_t answer_bytes = 3 * (sizeof(SampledToken) + sizeof(int64_t)) + top_bytes;
  // A step is told 2 * width alternatives of each beam, or as many as the answers show.
  const size_t step_bytes =
      width * std::max(2 * width, kept_top) * sizeof(decltype(SampledToken::top)::value_type);
  // The ends, and at the end a list of these and the beams.
  const size_t found_bytes = 4 * (sizeof(Found) + top_bytes);
  return width * (max_tokens * node_bytes + found_bytes) + step_bytes + max_tokens * answer_bytes;
}

bool BeamSearch::done() const {
  if (beams_.empty() || steps_ == options_.max_tokens) return true;
  return ended_.size() == options_.width && BestPossible() < ended_.back().score;
}

// Of all answers that begin with a beam: further tokens can only lower the sum, and the score of a
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
  return std::binary_search(ends.begin(), ends.end(), token);
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
      if (!IsEnd(top[rank].first))
        candidates.push_back({total, i, rank});
      else if (const double score = Score(total, steps_); IsAmongBest(score))
        AddEnded({beams_[i].last, MakeNode(beams_[i].last, behind[i], rank, now_ns), score});
    }
  }
  const size_t kept = std::min(candidates.size(), options_.width);
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(kept),
                    candidates.end(), [](const Candidate& a, const Candidate& b) {
                      if (a.total != b.total) return a.total > b.total;
                      return a.beam != b.beam ? a.beam < b.beam : a.rank < b.rank;
                    });
  candidates.resize(kept);
  std::vector<Beam> next;
  for (const auto& [total, beam, rank] : candidates) {
    nodes_.push_back(MakeNode(beams_[beam].last, behind[beam], rank, now_ns));
    next.push_back({nodes_.size() - 1, total});
  }
  beams_ = std::move(next);
  ++steps_;
}

BeamSearch::Node BeamSearch::MakeNode(size_t before, const SampledToken& behind, size_t rank,
                                      int64_t now_ns) const {
  const auto& top = behind.top;
  SampledToken token{top[rank].first, top[rank].second, {}, 0};
  token.top.assign(top.begin(),
                   top.begin() + static_cast<ptrdiff_t>(std::min(top.size(), options_.kept_top)));
  return {before, std::move(token), now_ns};
}

bool BeamSearch::IsAmongBest(double score) const {
  return ended_.size() < options_.width || score > ended_.back().score;
}

void BeamSearch::AddEnded(Found ended) {
  const auto at =
      std::upper_bound(ended_.begin(), ended_.end(), ended,
                       [](const Found& a, const Found& b) { return a.score > b.score; });
  ended_.insert(at, std::move(ended));
  if (ended_.size() > options_.width) ended_.pop_back();
}

std::vector<int32_t> BeamSearch::TokensOf(size_t beam) const {
  std::vector<int32_t> tokens;
  for (size_t at = beams_[beam].last; at != kNone; at = nodes_[at].before)
    tokens.push_back(nodes_[at].token.id);
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

std::vector<BeamSearch::Found> BeamSearch::Best() const {
  std::vector<Found> best = ended_;
  for (const Beam& beam : beams_) best.push_back({beam.last, {}, Score(beam.total, steps_)});
  std::stable_sort(best.begin(), best.end(),
                   [](const Found& a, const Found& b) { return a.score > b.score; });
  if (best.size() > options_.width)
    best.erase(best.begin() + static_cast<ptrdiff_t>(options_.width), best.end());
  return best;
}

BeamSearch::Answer BeamSearch::WriteOut(const Found& found) const {
  Answer answer;
  const auto add = [&answer](const Node& node) {
    answer.tokens.push_back(node.token);
    answer.at_ns.push_back(node.at_ns);
  };
  if (found.end) add(*found.end);
  for (size_t at = found.last; at != kNone; at = nodes_[at].before) add(nodes_[at]);
  std::reverse(answer.tokens.begin(), answer.tokens.end());
  std::reverse(answer.at_ns.begin(), answer.at_ns.end());
  answer.ended = found.end.has_value();
  answer.score = found.score;
  return answer;
}

}  // namespace pinion
