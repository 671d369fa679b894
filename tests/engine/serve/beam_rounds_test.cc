#include "engine/serve/beam_rounds.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace pinion {
namespace {

class BeamRoundsTest : public testing::Test {
 protected:
  // A search of width 2 for two tokens behind the prompt 1, 2; token 9 ends an answer.
  size_t Begin() {
    SubmitMessage prompt;
    prompt.id = 40;
    prompt.count = 2;
    prompt.priority = 3;
    prompt.cache_salt = "salt";
    prompt.params.temperature = 1;
    prompt.params.max_tokens = 2;
    prompt.prompt_ids = {1, 2};
    return rounds_.Begin(std::move(prompt), {.length_penalty = 0, .ends = {9}});
  }

  std::vector<SubmitMessage> TakeSubmits() {
    std::vector<SubmitMessage> submits;
    for (const LinkMessage& message : std::exchange(sent_, {}))
      submits.push_back(std::get<SubmitMessage>(message));
    return submits;
  }

  TokenEvent Event(uint64_t id, std::vector<std::pair<int32_t, double>> top) {
    TokenEvent event;
    event.request = id;
    event.has_token = true;
    event.token.id = top.front().first;
    event.token.top = std::move(top);
    event.finish = FinishReason::kLength;
    event.cached_tokens = cached_++;
    event.now_ns = 1000 + static_cast<int64_t>(cached_);
    return event;
  }

  std::vector<TokenEvent> EventsOf(const TokenEvent& event) {
    std::vector<TokenEvent> all;
    BeamEvents events = rounds_.OnEvent(event);
    while (auto next = events.Next()) all.push_back(std::move(*next));
    return all;
  }

  std::vector<LinkMessage> sent_;
  size_t cached_ = 5;
  BeamRounds rounds_{[this](const LinkMessage& message) {
    sent_.push_back(message);
    return size_t{7};
  }};
};

TEST_F(BeamRoundsTest, AsksForOneTokenBehindEachBeam) {
  EXPECT_EQ(Begin(), 7u);
  const auto first = TakeSubmits();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(BeamRounds::Owns(first[0].id));
  EXPECT_EQ(first[0].prompt_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(first[0].count, 1u);
  EXPECT_EQ(first[0].priority, 3);
  EXPECT_EQ(first[0].cache_salt, "salt");
  EXPECT_EQ(first[0].params.max_tokens, 1);
  EXPECT_EQ(first[0].params.logprobs, 4);
  EXPECT_EQ(first[0].params.temperature, 0);
  const auto computed = EventsOf(Event(first[0].id, {{3, -1}, {9, -2}, {4, -3}, {5, -4}}));
  ASSERT_EQ(computed.size(), 1u);
  EXPECT_EQ(computed[0].request, 40u);
  EXPECT_FALSE(computed[0].has_token) << "the prompt is computed, and no more";
  EXPECT_EQ(computed[0].finish, FinishReason::kNone);
  const auto second = TakeSubmits();
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].prompt_ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(second[1].prompt_ids, (std::vector<int32_t>{1, 2, 4}));
  EXPECT_EQ(rounds_.ChoiceOf(second[1].id), 40u);
  EXPECT_EQ(rounds_.ChoiceOf(first[0].id), 0u) << "that round is over";
}

TEST_F(BeamRoundsTest, TellsTheChoicesOfTheBestAnswersAtTheEnd) {
  Begin();
  rounds_.OnEvent(Event(TakeSubmits()[0].id, {{3, -1}, {9, -2}, {4, -3}, {5, -4}}));
  const auto second = TakeSubmits();
  EXPECT_TRUE(EventsOf(Event(second[1].id, {{6, -1}, {7, -2}, {8, -3}, {5, -4}})).empty());
  const auto events = EventsOf(Event(second[0].id, {{6, -0.5}, {7, -2}, {8, -3}, {5, -4}}));
  ASSERT_EQ(events.size(), 3u) << "two tokens of the one, and the end alone of the other";
  EXPECT_EQ(events[0].request, 40u);
  EXPECT_EQ(events[0].token.id, 3);
  EXPECT_EQ(events[0].finish, FinishReason::kNone);
  EXPECT_EQ(events[0].now_ns, 1006);
  EXPECT_EQ(events[1].request, 40u);
  EXPECT_EQ(events[1].token.id, 6);
  EXPECT_EQ(events[1].token.logprob, -0.5);
  EXPECT_EQ(events[1].finish, FinishReason::kLength);
  EXPECT_EQ(events[1].output_tokens, 2u);
  EXPECT_EQ(events[2].request, 41u);
  EXPECT_EQ(events[2].token.id, 9);
  EXPECT_EQ(events[2].finish, FinishReason::kStop);
  for (const TokenEvent& event : events) EXPECT_EQ(event.cached_tokens, 5u) << "of the prompt";
  EXPECT_TRUE(TakeSubmits().empty());
}

TEST_F(BeamRoundsTest, EndsARoundOfASearchThatIsAborted) {
  Begin();
  rounds_.OnEvent(Event(TakeSubmits()[0].id, {{3, -1}, {9, -2}, {4, -3}, {5, -4}}));
  const uint64_t first = TakeSubmits()[0].id;
  rounds_.Abort(41, 5);
  EXPECT_TRUE(sent_.empty()) << "those are other choices";
  rounds_.Abort(38, 4);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(std::get<AbortMessage>(sent_[0]).id, first);
  EXPECT_EQ(std::get<AbortMessage>(sent_[0]).count, 2u);
  EXPECT_TRUE(EventsOf(Event(first, {{3, -1}})).empty());
  EXPECT_EQ(sent_.size(), 1u);
}

TEST_F(BeamRoundsTest, FailsASearchThatFindsTooFewAnswers) {
  Begin();
  TokenEvent event = Event(TakeSubmits()[0].id, {{3, -1}});
  event.token.top.clear();
  const auto events = EventsOf(event);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].request, 40u);
  EXPECT_EQ(
      events[0].error,
      "the beam search found 0 of 2 answers: the engine gave too few alternatives of a token");
  EXPECT_TRUE(sent_.empty());
}

TEST_F(BeamRoundsTest, PassesAnErrorOnAndEndsTheRestOfTheRound) {
  Begin();
  rounds_.OnEvent(Event(TakeSubmits()[0].id, {{3, -1}, {9, -2}, {4, -3}, {5, -4}}));
  const uint64_t first = TakeSubmits()[0].id;
  TokenEvent failed;
  failed.request = first + 1;
  failed.finish = FinishReason::kAborted;
  failed.error = "why";
  const auto events = EventsOf(failed);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].request, 40u);
  EXPECT_EQ(events[0].error, "why");
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(std::get<AbortMessage>(sent_[0]).id, first);
}

TEST_F(BeamRoundsTest, SaysThatAStepWasGivenUp) {
  Begin();
  TokenEvent given_up;
  given_up.request = TakeSubmits()[0].id;
  given_up.finish = FinishReason::kAborted;
  const auto events = EventsOf(given_up);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].error,
            "the engine gave up a step of the beam search; send the request again");
}

}  // namespace
}  // namespace pinion
