#include "engine/serve/worker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "engine/serve/link.h"
#include "tests/engine/serve/fakes.h"

namespace pinion {
namespace {

// An engine that refuses the request with one id, and notes what the others ask for.
class PickyEngine : public FakeEngine {
 public:
  Status Add(Request request) override {
    if (request.id == refused) return Fail(ErrorCode::kUsage, "this one is refused");
    seeds.push_back(request.params.seed.value_or(0));
    groups.push_back(request.group);
    priorities.push_back(request.priority);
    return FakeEngine::Add(std::move(request));
  }
  uint64_t refused = 0;
  std::vector<uint64_t> seeds, groups;
  std::vector<int> priorities;
};

class ServeLinkTest : public testing::Test {
 protected:
  // The engine's answers to `messages`, events left out.
  std::vector<LinkMessage> Serve(const std::vector<LinkMessage>& messages) {
    const auto ends = *MakeLinkPair();
    auto ours = std::make_unique<LinkSocket>(ends.first);
    LinkSocket theirs(ends.second);
    for (const LinkMessage& message : messages) ours->Send(message);
    ours->Send(PingMessage{99});
    std::thread engine([&] { ServeLink(engine_, theirs); });
    std::vector<LinkMessage> got;
    for (bool last = false; !last;) {
      EXPECT_TRUE(ours->Receive());
      for (auto message = *ours->Next(); message; message = *ours->Next()) {
        const auto* pong = std::get_if<PongMessage>(&*message);
        if (pong && pong->number == 99)
          last = true;
        else if (!std::holds_alternative<EventsMessage>(*message))
          got.push_back(std::move(*message));
      }
    }
    ours.reset();
    engine.join();
    return got;
  }

  // Its choices run but never yield a token.
  static SubmitMessage Held(uint64_t id, uint32_t count) {
    SubmitMessage submit;
    submit.id = id;
    submit.count = count;
    submit.priority = -3;
    submit.params.seed = 40;
    submit.prompt_ids = {'H'};
    return submit;
  }

  PickyEngine engine_;
};

// Has a few pieces of work for its idle time.
class PreparingEngine : public FakeEngine {
 public:
  bool Prepare() override {
    if (left_ == 0) return false;
    if (--left_ == 0) done.set_value();
    return true;
  }
  std::promise<void> done;

 private:
  int left_ = 3;
};

TEST(ServeLink, AnIdleEnginePreparesUnasked) {
  const auto ends = *MakeLinkPair();
  auto ours = std::make_unique<LinkSocket>(ends.first);
  LinkSocket theirs(ends.second);
  PreparingEngine engine;
  std::thread serving([&] { ServeLink(engine, theirs, {}); });
  EXPECT_EQ(engine.done.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  ours.reset();
  serving.join();
}

// Tells as many alternatives of each token as a large vocabulary has.
class TalkativeEngine : public FakeEngine {
 public:
  static constexpr size_t kAlternatives = 250'000;
  void Step(std::vector<TokenEvent>& events) override {
    FakeEngine::Step(events);
    for (TokenEvent& event : events) event.token.top.assign(kAlternatives, {1, -1.0});
  }
};

// Together they are more than the front end takes for a message.
TEST(ServeLink, EventsOfAStepArriveHoweverLargeTheyAre) {
  const auto ends = *MakeLinkPair();
  auto ours = std::make_unique<LinkSocket>(ends.first);
  LinkSocket theirs(ends.second);
  TalkativeEngine engine;
  std::thread serving([&] { ServeLink(engine, theirs, {}); });
  SubmitMessage submit;
  submit.count = 48;
  submit.prompt_ids = {'x'};
  submit.params.max_tokens = 1;
  ASSERT_GT(submit.count * engine.kAlternatives * 12, size_t{FrameReader::kMaxPayloadBytes});
  ours->Send(submit);
  uint64_t next = submit.id;
  bool is_broken = false;
  while (next < submit.count && !is_broken && ours->Receive()) {
    for (;;) {
      auto message = ours->Next();
      is_broken = !message;
      if (is_broken || !*message) break;
      const auto* part = std::get_if<EventsMessage>(&**message);
      if (!part) continue;
      for (const TokenEvent& event : part->events) {
        EXPECT_EQ(event.request, next++);
        EXPECT_EQ(event.token.top.size(), engine.kAlternatives);
      }
    }
  }
  EXPECT_FALSE(is_broken);
  EXPECT_EQ(next, submit.count);
  ours.reset();
  serving.join();
}

TEST_F(ServeLinkTest, MakesChoicesOfOnePrompt) {
  EXPECT_TRUE(Serve({Held(7, 3)}).empty());
  EXPECT_EQ(engine_.live, 3);
  EXPECT_EQ(engine_.seeds, (std::vector<uint64_t>{40, 41, 42}));
  EXPECT_EQ(engine_.groups, (std::vector<uint64_t>{7, 7, 7}));
  EXPECT_EQ(engine_.priorities, (std::vector<int>{-3, -3, -3}));
}

TEST_F(ServeLinkTest, RefusesAllChoicesOfAPromptOrNone) {
  engine_.refused = 9;
  const auto got = Serve({Held(7, 4)});
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(std::get<RefusedMessage>(got[0]).id, 7u);
  EXPECT_EQ(engine_.aborted, 2);
  EXPECT_EQ(engine_.live, 0);
}

TEST_F(ServeLinkTest, AbortsARangeOfChoices) {
  Serve({Held(7, 4), AbortMessage{8, 2}});
  EXPECT_EQ(engine_.aborted, 2);
  EXPECT_EQ(engine_.live, 2);
}

TEST_F(ServeLinkTest, AnswersQuestionsInTheirOrder) {
  const auto got = Serve({PingMessage{5}, InfoRequestMessage{}, PingMessage{6}});
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(std::get<PongMessage>(got[0]).number, 5u);
  EXPECT_EQ(std::get<InfoMessage>(got[1]).server_info, "{}");
  EXPECT_EQ(std::get<PongMessage>(got[2]).number, 6u);
}

}  // namespace
}  // namespace pinion
