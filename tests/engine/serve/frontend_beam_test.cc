// Beam searches, from the client to the engine and back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <utility>

#include "tests/engine/serve/frontend_fixture.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// An engine's event of a beam.
TokenEvent RoundEvent(uint64_t id) {
  TokenEvent event;
  event.request = id;
  event.has_token = true;
  for (int32_t token = 'a'; token < 'i'; ++token) event.token.top.emplace_back(token, -token);
  event.finish = FinishReason::kLength;
  return event;
}

// Behind every text the engine's likeliest tokens are 'a' and 'z'.
TEST_F(FrontendTest, GivesTheBestAnswersOfABeamSearch) {
  StartEngine();
  const Json answer = Ask("/v1/completions",
                          R"({"prompt":["x","yy"],"n":2,"max_tokens":2,"use_beam_search":true})");
  EXPECT_EQ(TextOf(answer, 0), "aa");
  EXPECT_EQ(TextOf(answer, 1), "az");
  EXPECT_EQ(TextOf(answer, 2), "aa");
  EXPECT_EQ(answer.Find("usage")->Find("prompt_tokens")->integer(), 3);
  EXPECT_EQ(answer.Find("usage")->Find("completion_tokens")->integer(), 8);
  const Json chat =
      Ask("/v1/chat/completions",
          R"({"messages":[{"role":"user","content":"x"}],"max_tokens":1,"use_beam_search":true})");
  EXPECT_EQ(chat.Find("choices")->array()[0].Find("message")->Find("content")->string(), "a");
}

TEST_F(FrontendTest, GivesLongAnswersOfABeamSearchWhole) {
  StartEngine();
  const Json answer =
      Ask("/v1/completions", R"({"prompt":"x","n":4,"max_tokens":90,"use_beam_search":true})");
  EXPECT_EQ(TextOf(answer, 0), std::string(90, 'a'));
  EXPECT_EQ(TextOf(answer, 3).size(), 90u);
  EXPECT_EQ(answer.Find("usage")->Find("completion_tokens")->integer(), 360);
}

TEST_F(FrontendTest, AbortsTheBeamsOfADisconnectedClient) {
  StartEngine();
  RawClient client(port_);
  SendPost(client, R"({"prompt":"Held","n":2,"use_beam_search":true})");
  WaitFor(engine_.live, 1);
  client.Close();
  WaitFor(engine_.aborted, 1);
  WaitFor(engine_.live, 0);
}

TEST_F(FrontendTest, PassesOnWhyABeamIsRefused) {
  StartEngine();
  EXPECT_THAT(Post(port_, "/v1/completions", R"({"prompt":"!x","use_beam_search":true})"),
              HasSubstr("the prompt is refused"));
}

TEST_F(FrontendTest, FailsABeamSearchWhoseEngineDies) {
  StartEngine();
  RawClient client(port_);
  SendPost(client, R"({"prompt":"Held","use_beam_search":true})");
  WaitFor(engine_.live, 1);
  OnLoop([this] { Enter(EngineState::kRestarting, "the engine died"); });
  EXPECT_EQ(StatusOf(client.ReadUntil("}}")), "503");
}

TEST_F(FrontendTest, BoundsTheWidthOfABeamSearch) {
  StartEngine();
  const std::string got =
      Post(port_, "/v1/completions", R"({"prompt":"x","n":11,"use_beam_search":true})");
  EXPECT_EQ(StatusOf(got), "400");
  EXPECT_THAT(got, HasSubstr("'n' is 11, the width of a beam search that looks at 22 alternatives "
                             "of each token, want at most 20 (--max-logprobs)"));
}

// Of 360 tokens 256 are told at once, the rest later.
TEST_F(FrontendTest, ForgetsTheRestOfABeamSearchsAnswersIfItsRequestHasEnded) {
  StartEngine();
  const size_t width = 4, max_tokens = 90;
  RawClient client(port_);
  SendPost(client, R"({"prompt":"Held","n":4,"max_tokens":90,"use_beam_search":true})");
  WaitFor(engine_.live, 1);
  OnLoop([&] {
    uint64_t id = uint64_t{1} << 63;
    for (size_t step = 0; step < max_tokens; ++step) {
      EventsMessage round;
      for (size_t beam = 0; beam < (step == 0 ? 1 : width); ++beam)
        round.events.push_back(RoundEvent(id++));
      frontend_->OnMessage(std::move(round));
    }
    Enter(EngineState::kRestarting, "the engine died");
  });
  EXPECT_EQ(StatusOf(client.ReadUntil("}}")), "503");
  OnLoop([this] { Enter(EngineState::kReady, ""); });
  EXPECT_EQ(TextOf(Ask("/v1/completions", R"({"prompt":"x","max_tokens":1})")), "a");
}

// Of two engines that have a beam each one dies.
TEST_F(FrontendTest, FailsABeamSearchThatLosesABeamAndAbortsTheOthers) {
  StartEngine();
  RawClient client(port_);
  SendPost(client, R"({"prompt":"Held","n":2,"use_beam_search":true})");
  WaitFor(engine_.live, 1);
  const uint64_t first = uint64_t{1} << 63;
  OnLoop([&] { frontend_->OnMessage(EventsMessage{{RoundEvent(first)}, {}}); });
  WaitFor(engine_.live, 3);  // the first round's, which never ends, and two beams
  OnLoop([&] { frontend_->OnLost({first + 2}, "an engine died"); });
  const std::string got = client.ReadUntil("}}");
  EXPECT_EQ(StatusOf(got), "503");
  EXPECT_THAT(got, HasSubstr("an engine died"));
  WaitFor(engine_.aborted, 2);
  EXPECT_EQ(engine_.live, 1);
}

class QueuedBeamTest : public FrontendTest {
 protected:
  QueuedBeamTest() { limits_.max_num_queued_tokens = 50; }
};

// The second round waits, and the prompt does not: nothing of it counts as queued.
TEST_F(QueuedBeamTest, ThePromptOfASearchIsQueuedUntilItsFirstStepIsComputed) {
  std::promise<void> second_round, goes_on;
  bool is_told = false;
  engine_.on_add = [&](const Request& request) {
    if (request.prompt_ids.size() != 21 || std::exchange(is_told, true)) return;
    second_round.set_value();
    goes_on.get_future().wait();
  };
  StartEngine();
  RawClient client(port_);
  SendPost(client, StrCat(R"({"prompt":")", std::string(20, 'x'),
                          R"(","n":2,"max_tokens":2,"use_beam_search":true})"));
  second_round.get_future().wait();
  OnLoop([] {});  // what sent that round has come to its end
  const std::string got =
      Post(port_, "/v1/completions",
           StrCat(R"({"prompt":")", std::string(20, 'y'), R"(","timeout":0.5})"));
  EXPECT_THAT(got, Not(HasSubstr("--max-num-queued-tokens")));
  EXPECT_THAT(got, HasSubstr("within 0.5 s (timeout)"));
  goes_on.set_value();
  EXPECT_EQ(StatusOf(client.ReadUntil("}}")), "200");
}

}  // namespace
}  // namespace pinion
