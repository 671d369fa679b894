// Beam searches, from the client to the engine and back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/engine/serve/frontend_fixture.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace pinion
