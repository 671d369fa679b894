#include "harness/watch/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "engine/base/strings.h"
#include "tests/engine/serve/client.h"
#include "tests/harness/sweep/sweep_fixture.h"

namespace pinion::harness {
namespace {

constexpr char kFollow[] = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
constexpr std::string_view kState = "\"state\":\"told ";

// The numbers of all the news in `stream`, in its order.
std::vector<int> StatesIn(std::string_view stream) {
  std::vector<int> states;
  for (size_t at = 0; (at = stream.find(kState, at)) != stream.npos;)
    states.push_back(std::atoi(stream.data() + (at += kState.size())));
  return states;
}

// Views that show how many candidates there are.
PageViews MadeUpViews() {
  const auto count = [](const Results& results) { return StrCat(results.candidates.size()); };
  PageViews views;
  views.page = [count](const Results& results) -> Result<std::string> {
    return "page of " + count(results);
  };
  views.json = [count](const Results& results) -> Result<std::string> {
    return "[" + count(results) + "]";
  };
  views.update = [count](const Results& results) {
    Json update;
    update.Set("count", count(results));
    return update;
  };
  return views;
}

// The server of a sweep that has run, told by this thread that there is more.
class WatchServerTest : public SweepTest {
 protected:
  void SetUp() override {
    SweepTest::SetUp();
    ASSERT_TRUE(RunSweep(request_, progress_));
    auto server = WatchServer::Start(request_.folder, MadeUpViews(), 0);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }

  void Tell(int number, bool finished) { server_->Tell(StrCat("told ", number), finished); }

  // A browser's stream of news, up to the last.
  std::string Follow() {
    RawClient client(server_->port());
    client.Send(kFollow);
    std::string stream = client.ReadUntil("\n");
    ++following_;
    while (stream.find("\"finished\":true") == stream.npos && !HasFailure())
      stream += client.ReadUntil("\n");
    return stream;
  }

  // A browser that looks at everything and leaves.
  void Visit() {
    EXPECT_EQ(StatusOf(Get(server_->port(), "/")), "200");
    EXPECT_EQ(StatusOf(Get(server_->port(), "/results.json")), "200");
    RawClient client(server_->port());
    client.Send(kFollow);
    client.ReadUntil("\n");
  }

  std::atomic<int> following_{0};
  std::unique_ptr<WatchServer> server_;
};

TEST_F(WatchServerTest, TellsEveryFollowerInOrderWhileOthersComeAndGo) {
  constexpr int kFollowers = 2, kNews = 8;
  Tell(0, false);
  std::vector<std::string> streams(kFollowers);
  std::vector<std::thread> followers;
  for (std::string& stream : streams) followers.emplace_back([&] { stream = Follow(); });
  std::atomic<bool> over{false};
  std::thread visitor([&] {
    while (!over) Visit();
  });
  while (following_ < kFollowers && !HasFailure()) std::this_thread::yield();
  for (int number = 1; number <= kNews; ++number) Tell(number, number == kNews);
  for (std::thread& follower : followers) follower.join();
  over = true;
  visitor.join();
  server_.reset();
  for (const std::string& stream : streams) {
    const std::vector<int> states = StatesIn(stream);
    ASSERT_FALSE(states.empty());
    for (size_t i = 0; i < states.size(); ++i)
      EXPECT_EQ(states[i], states[0] + static_cast<int>(i)) << "news are missing or out of order";
    EXPECT_EQ(states.back(), kNews);
  }
}

}  // namespace
}  // namespace pinion::harness
