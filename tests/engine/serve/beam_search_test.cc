#include "engine/serve/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace pinion {
namespace {

using Tokens = std::vector<int32_t>;

// A model that never says the same twice: log-probabilities that a hash of the text gives.
class HashModel {
 public:
  HashModel(int32_t vocabulary, uint64_t seed) : vocabulary_(vocabulary), seed_(seed) {}

  std::vector<double> Behind(const Tokens& text) const {
    std::vector<double> weights;
    double sum = 0;
    for (int32_t id = 0; id < vocabulary_; ++id) {
      uint64_t hash = seed_;
      for (const int32_t token : text) hash = Mixed(hash + static_cast<uint64_t>(token) + 1);
      hash = Mixed(hash + 1000 + static_cast<uint64_t>(id));
      weights.push_back(std::exp(static_cast<double>(hash % 1000) / 250));
      sum += weights.back();
    }
    for (double& weight : weights) weight = std::log(weight / sum);
    return weights;
  }

  // As an engine tells them: the best `count`, best first.
  SampledToken Told(const Tokens& text, size_t count) const {
    const std::vector<double> all = Behind(text);
    SampledToken token;
    for (size_t id = 0; id < all.size(); ++id)
      token.top.emplace_back(static_cast<int32_t>(id), all[id]);
    std::stable_sort(token.top.begin(), token.top.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    token.top.resize(std::min(count, token.top.size()));
    token.id = token.top.front().first;
    token.logprob = token.top.front().second;
    return token;
  }

  int32_t vocabulary() const { return vocabulary_; }

 private:
  static uint64_t Mixed(uint64_t value) {
    value = (value ^ (value >> 31)) * 0x7FB5D329728EA185;
    value = (value ^ (value >> 27)) * 0x81DADEF4BC2DD44D;
    return value ^ (value >> 33);
  }
  int32_t vocabulary_;
  uint64_t seed_;
};

struct Scored {
  Tokens tokens;
  double score = 0;
  bool operator==(const Scored&) const = default;
};

std::vector<Scored> Searched(const HashModel& model, const BeamSearch::Options& options) {
  BeamSearch search(options);
  while (!search.done()) {
    std::vector<SampledToken> behind;
    for (size_t i = 0; i < search.beams(); ++i)
      behind.push_back(model.Told(search.TokensOf(i), 2 * options.width));
    search.Step(std::move(behind), 0);
  }
  std::vector<Scored> best;
  for (const BeamSearch::Found& found : search.Best()) {
    const BeamSearch::Answer answer = search.WriteOut(found);
    best.push_back({{}, answer.score});
    for (const SampledToken& token : answer.tokens) best.back().tokens.push_back(token.id);
  }
  return best;
}

bool IsEnd(const BeamSearch::Options& options, int32_t id) {
  const auto& ends = options.rules.ends;
  return std::find(ends.begin(), ends.end(), id) != ends.end();
}

double ScoreOf(const BeamSearch::Options& options, double total, size_t tokens) {
  return total / std::pow(static_cast<double>(options.prompt_tokens + tokens),
                          options.rules.length_penalty);
}

// The definition, to the last step and without forgetting anything.
std::vector<Scored> SearchedPlainly(const HashModel& model, const BeamSearch::Options& options) {
  struct Path {
    Tokens tokens;
    double total;
  };
  std::vector<Path> beams = {{{}, 0}};
  std::vector<Scored> ended;
  for (size_t step = 0; step < options.max_tokens && !beams.empty(); ++step) {
    std::vector<Path> next;
    for (const Path& beam : beams) {
      for (const auto& [id, logprob] : model.Told(beam.tokens, 2 * options.width).top) {
        Path longer = beam;
        longer.tokens.push_back(id);
        longer.total += logprob;
        if (IsEnd(options, id))
          ended.push_back({longer.tokens, ScoreOf(options, longer.total, step)});
        else
          next.push_back(longer);
      }
    }
    std::stable_sort(next.begin(), next.end(),
                     [](const Path& a, const Path& b) { return a.total > b.total; });
    if (next.size() > options.width) next.resize(options.width);
    beams = next;
  }
  for (const Path& beam : beams)
    ended.push_back({beam.tokens, ScoreOf(options, beam.total, beam.tokens.size())});
  std::stable_sort(ended.begin(), ended.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
  if (ended.size() > options.width) ended.resize(options.width);
  return ended;
}

TEST(BeamSearch, GivesTheResultOfAPlainSearchToTheLastStep) {
  size_t cases = 0, with_ends = 0;
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    const HashModel model(9, seed);
    for (const size_t width : {1, 2, 3, 4}) {
      for (const double penalty : {-1.5, 0.0, 1.0, 2.0}) {
        for (const size_t max_tokens : {1, 2, 12}) {
          for (const auto& ends : {Tokens{}, Tokens{4}, Tokens{0, 7}}) {
            const BeamSearch::Options options{width, 3, max_tokens, 0, {penalty, ends}};
            const auto wanted = SearchedPlainly(model, options);
            EXPECT_EQ(Searched(model, options), wanted)
                << "seed " << seed << " width " << width << " penalty " << penalty << " tokens "
                << max_tokens << " ends " << ends.size();
            ++cases;
            for (const Scored& one : wanted) with_ends += IsEnd(options, one.tokens.back());
          }
        }
      }
    }
  }
  EXPECT_GT(with_ends, cases / 4) << "the models end too few answers for this test to mean much";
}

// The best of all texts there are, with a width that drops none.
TEST(BeamSearch, ThatDropsNothingFindsTheBestOfAllTexts) {
  const int32_t end = 2;
  for (const uint64_t seed : {11, 12, 13, 14}) {
    const HashModel model(3, seed);
    for (const double penalty : {0.0, 1.0, 3.0}) {
      const BeamSearch::Options options{27, 2, 3, 0, {penalty, {end}}};
      Scored best{{}, -std::numeric_limits<double>::infinity()};
      const auto visit = [&](const auto& self, Tokens text, double total) -> void {
        const bool ended = !text.empty() && text.back() == end;
        if (ended || text.size() == options.max_tokens) {
          const double score = ScoreOf(options, total, text.size() - (ended ? 1 : 0));
          if (score > best.score) best = {text, score};
          return;
        }
        const std::vector<double> all = model.Behind(text);
        for (int32_t id = 0; id < model.vocabulary(); ++id) {
          Tokens longer = text;
          longer.push_back(id);
          self(self, longer, total + all[static_cast<size_t>(id)]);
        }
      };
      visit(visit, {}, 0);
      const auto found = Searched(model, options);
      ASSERT_FALSE(found.empty());
      EXPECT_EQ(found.front().tokens, best.tokens) << "seed " << seed << " penalty " << penalty;
    }
  }
}

TEST(BeamSearch, EndsOnceNoBeamCanBeatTheAnswers) {
  BeamSearch search({.width = 1, .prompt_tokens = 1, .max_tokens = 100, .rules = {0, {9}}});
  SampledToken behind;
  behind.top = {{9, -0.1}, {1, -2.4}};
  search.Step({behind}, 0);
  EXPECT_TRUE(search.done()) << "without a penalty a longer text is never likelier";
  BeamSearch longer({.width = 1, .prompt_tokens = 1, .max_tokens = 100, .rules = {1, {9}}});
  longer.Step({behind}, 0);
  EXPECT_FALSE(longer.done()) << "-2.4 / 101 would be better than -0.1";
}

TEST(BeamSearch, TellsEachTokensTimeAndAlternatives) {
  BeamSearch search({.width = 1, .max_tokens = 2, .kept_top = 1, .rules = {1, {}}});
  SampledToken first, second;
  first.top = {{5, -0.5}, {6, -1}};
  second.top = {{7, -0.25}, {8, -3}};
  search.Step({first}, 100);
  search.Step({second}, 200);
  ASSERT_EQ(search.Best().size(), 1u);
  const BeamSearch::Answer answer = search.WriteOut(search.Best()[0]);
  ASSERT_EQ(answer.tokens.size(), 2u);
  EXPECT_EQ(answer.tokens[1].id, 7);
  EXPECT_EQ(answer.tokens[1].logprob, -0.25);
  EXPECT_EQ(answer.tokens[1].top, (std::vector<std::pair<int32_t, double>>{{7, -0.25}}));
  EXPECT_EQ(answer.at_ns, (std::vector<int64_t>{100, 200}));
  EXPECT_FALSE(answer.ended);
  EXPECT_EQ(answer.score, -0.75 / 3);
}

// Each step has 12 ends that are better than all before them, worst beam and worst end first.
TEST(BeamSearch, KeepsNoTokenOfAnAnswerThatIsNotAmongTheBest) {
  const size_t width = 4, steps = 50;
  BeamSearch search(
      {.width = width, .max_tokens = steps, .rules = {10, {50, 40, 30, 20, 10, 60, 70, 80}}});
  for (size_t step = 0; step < steps; ++step) {
    std::vector<SampledToken> behind(search.beams());
    for (size_t i = 0; i < behind.size(); ++i) {
      const double best = -0.001 * static_cast<double>(behind.size() - i);
      behind[i].top = {{1, best}};
      for (int32_t end = 10; end <= 30; end += 10) behind[i].top.emplace_back(end, best);
      for (int32_t other = 2; other < 6; ++other) behind[i].top.emplace_back(other, best);
    }
    search.Step(std::move(behind), 0);
    EXPECT_LE(search.kept_tokens(), width * (step + 1) + width);
    ASSERT_FALSE(search.done() && step + 1 < steps);
  }
  EXPECT_GE(search.kept_tokens(), steps) << "the beams' tokens are kept";
}

// A stored token, with one that a list of twice its size is copied from.
TEST(BeamSearch, MostBytesCountsEachTokenOfEachBeam) {
  const size_t token_bytes = sizeof(SampledToken), shown = 5;
  const size_t few = BeamSearch::MostBytes(8, 100, shown);
  EXPECT_GE(few, 8 * 100 * (3 * token_bytes + shown * sizeof(std::pair<int32_t, double>)));
  EXPECT_GE(BeamSearch::MostBytes(8, 1000, shown) - few, 9 * 8 * 100 * 3 * token_bytes);
  EXPECT_GE(BeamSearch::MostBytes(64, 1, 0), 64 * 128 * sizeof(std::pair<int32_t, double>))
      << "what the first steps are told";
}

}  // namespace
}  // namespace pinion
