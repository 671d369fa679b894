#include "engine/serve/admin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <thread>

#include "engine/base/strings.h"
#include "engine/base/trace.h"

namespace pinion {
namespace {

using testing::HasSubstr;

class HeldReply : public HttpReply {
 public:
  void AddHeader(std::string name, std::string value) override { headers[name] = value; }
  void Send(int status, std::string_view type, std::string text) override {
    EXPECT_EQ(this->status, 0) << "answered twice";
    this->status = status;
    headers["Content-Type"] = type;
    body = std::move(text);
  }
  void Begin(std::string_view) override {}
  void Write(std::string_view) override {}
  void End() override {}
  void OnGone(std::function<void()>) override {}
  int status = 0;  // 0: not answered yet
  std::map<std::string, std::string> headers;
  std::string body;
};

class AdminTest : public testing::Test {
 protected:
  void SetUp() override {
    HttpOptions http;
    http.port = 0;
    server_ = *HttpServer::Listen(http, [](HttpRequest, auto) {});
    options_.enable_sleep_mode = true;
    options_.enable_cache_reset = true;
    options_.profile_dir = testing::TempDir();
    Open();
  }
  void Open() {
    AdminApi::Actions actions;
    actions.send = [this](const LinkMessage& message) { sent_.push_back(message); };
    actions.sleep = [this](int level, std::function<void()> done) {
      level_ = level;
      asleep_ = std::move(done);
    };
    actions.wake_up = [this] { ++woken_; };
    actions.awaited = [this](const char* operation, size_t requests) {
      awaited_.push_back(StrCat(operation, " ", requests));
    };
    actions.rested = [this](const char* operation, double seconds) {
      EXPECT_GE(seconds, 0);
      rested_.emplace_back(operation);
    };
    admin_.emplace(*server_, options_, std::move(actions), facts_);
  }
  void BecomeReady() {
    admin_->OnMessage(ReadyMessage{100, 1000, 4, R"({"isa":"fake"})"});
    admin_->OnEngineState(EngineState::kReady, "");
  }

  // Null if the path is not the admin's.
  std::shared_ptr<HeldReply> Ask(const char* method, const std::string& target) {
    HttpRequest request;
    request.method = method;
    request.path = target.substr(0, target.find('?'));
    if (request.path != target) request.query = target.substr(request.path.size() + 1);
    auto held = std::make_shared<HeldReply>();
    std::shared_ptr<HttpReply> reply = held;
    return admin_->Handle(request, reply) ? held : nullptr;
  }

  void RunUntilAnswered(const HeldReply& reply) {
    std::function<void()> check = [&] {
      if (reply.status != 0) return server_->Stop();
      server_->After(0.002, check);
    };
    check();
    server_->Run();
  }

  std::unique_ptr<HttpServer> server_;
  FaultOptions options_;
  AdminApi::Facts facts_;
  std::optional<AdminApi> admin_;
  std::vector<LinkMessage> sent_;
  std::vector<std::string> awaited_, rested_;
  int level_ = 0, woken_ = 0;
  std::function<void()> asleep_;
};

TEST_F(AdminTest, AnswersTheRootWithAPageThatFetchesNothingElse) {
  facts_.page = true;
  Open();
  const auto page = Ask("GET", "/");  // also while the model loads
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->headers["Content-Type"], "text/html; charset=utf-8");
  EXPECT_EQ(page->headers["X-Content-Type-Options"], "nosniff");
  const std::string& policy = page->headers["Content-Security-Policy"];
  for (const char* rule : {"default-src 'none';", "script-src 'sha256-", "style-src 'sha256-",
                           "connect-src 'self';", "frame-ancestors 'none';", "base-uri 'none';"})
    EXPECT_THAT(policy, HasSubstr(rule));
  EXPECT_THAT(policy, testing::Not(HasSubstr("unsafe")));
  EXPECT_THAT(page->body, testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page->body, testing::Not(HasSubstr("{{")));
  for (const char* fetched : {" src=", "url(", "@import", "href=\"http"})
    EXPECT_THAT(page->body, testing::Not(HasSubstr(fetched)));
  EXPECT_EQ(Ask("POST", "/")->status, 405);
}

TEST_F(AdminTest, HasNoPageUnlessItIsAskedFor) { EXPECT_EQ(Ask("GET", "/"), nullptr); }

TEST_F(AdminTest, InfoTellsOfTheMachineAndTheProfile) {
  facts_.machine = Json::Object{{"name", "a machine"}};
  facts_.budget = Json::Object{{"cpus", Json::Array{0, 1}}};
  facts_.profile = Json::Object{{"objective", "latency"}};
  Open();
  BecomeReady();
  const auto info = Json::Parse(Ask("GET", "/server_info")->body);
  EXPECT_EQ(*info->Find("isa"), Json("fake"));
  EXPECT_EQ(*info->Find("machine"), facts_.machine);
  EXPECT_EQ(*info->Find("budget"), facts_.budget);
  EXPECT_EQ(*info->Find("profile"), facts_.profile);
}

TEST_F(AdminTest, HealthSaysWhyItIsNotWell) {
  EXPECT_EQ(Ask("GET", "/health")->status, 503);
  EXPECT_THAT(Ask("GET", "/health")->body, HasSubstr(R"("status":"starting")"));
  BecomeReady();
  for (const char* path : {"/health", "/ping"}) {
    EXPECT_EQ(Ask("GET", path)->status, 200);
    EXPECT_EQ(Ask("GET", path)->body, "");
  }
  admin_->OnEngineState(EngineState::kRestarting, "it fell over");
  EXPECT_EQ(Ask("GET", "/ping")->status, 503);
  EXPECT_EQ(Ask("GET", "/health")->body, R"({"status":"restarting","reason":"it fell over"})");
  EXPECT_EQ(Ask("POST", "/health")->status, 405);
}

TEST_F(AdminTest, ResetsThePrefixCacheOnceForAllWaitingClients) {
  BecomeReady();
  const auto first = Ask("POST", "/reset_prefix_cache"),
             second = Ask("POST", "/reset_prefix_cache");
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<ResetCacheMessage>(sent_[0]));
  EXPECT_EQ(first->status, 0);
  EXPECT_TRUE(admin_->OnMessage(CacheResetMessage{false}));
  for (const auto& reply : {first, second}) EXPECT_EQ(reply->body, R"({"success":false})");
  const auto late = Ask("POST", "/reset_prefix_cache");
  admin_->OnEngineState(EngineState::kRestarting, "it fell over");
  EXPECT_EQ(late->status, 503);
  EXPECT_EQ(Ask("POST", "/reset_prefix_cache")->status, 503);
}

TEST_F(AdminTest, HasSleepAndProfilingOnlyOnDemand) {
  options_ = {};
  Open();
  for (const char* path :
       {"/sleep", "/wake_up", "/start_profile", "/stop_profile", "/reset_prefix_cache"})
    EXPECT_EQ(Ask("POST", path), nullptr) << path;
  EXPECT_EQ(Ask("GET", "/is_sleeping"), nullptr);
  EXPECT_EQ(Ask("POST", "/v1/completions"), nullptr);
  EXPECT_NE(Ask("GET", "/version"), nullptr);
}

TEST_F(AdminTest, AsksTheEngineForItsInfoOncePerAnswer) {
  admin_->OnEngineState(EngineState::kReady, "");  // what is known is older than any limit
  const auto first = Ask("GET", "/server_info"), second = Ask("GET", "/server_info");
  EXPECT_EQ(first->status, 0);
  EXPECT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<InfoRequestMessage>(sent_.at(0)));
  EXPECT_TRUE(admin_->OnMessage(InfoMessage{R"({"isa":"new"})"}));
  for (const auto& reply : {first, second}) EXPECT_THAT(reply->body, HasSubstr("new"));
}

TEST_F(AdminTest, AnswersFromItsLastReportForAWhile) {
  BecomeReady();
  EXPECT_THAT(Ask("GET", "/server_info")->body, HasSubstr("fake"));  // what Ready brought
  EXPECT_TRUE(sent_.empty());
  EventsMessage batch;
  batch.stats.steps = 7;
  EXPECT_FALSE(admin_->OnMessage(batch));
  EXPECT_THAT(Ask("GET", "/server_info")->body, HasSubstr(R"("steps":7)"));
}

TEST_F(AdminTest, DoesNotWaitForTheInfoOfADeadEngine) {
  admin_->OnEngineState(EngineState::kReady, "");
  const auto asks = Ask("GET", "/server_info");
  admin_->OnEngineState(EngineState::kRestarting, "it fell over");
  EXPECT_EQ(asks->status, 503);
  admin_->OnEngineState(EngineState::kReady, "");
  Ask("GET", "/server_info");
  EXPECT_EQ(sent_.size(), 2u);  // the next one is asked
}

TEST_F(AdminTest, SleepsOnceForAllAskingClients) {
  EXPECT_EQ(Ask("POST", "/sleep")->status, 503);  // nothing to put to sleep yet
  BecomeReady();
  EXPECT_EQ(Ask("POST", "/sleep?level=3")->status, 400);
  EXPECT_EQ(Ask("POST", "/wake_up")->status, 200);  // it is awake
  const auto first = Ask("POST", "/sleep?x=1&level=2"), second = Ask("POST", "/sleep");
  EXPECT_EQ(level_, 2);
  EXPECT_EQ(first->status, 0);
  EXPECT_EQ(Ask("POST", "/wake_up")->status, 409);
  EXPECT_EQ(Ask("GET", "/health")->status, 503);  // it refuses requests already
  admin_->OnEngineState(EngineState::kSleeping, "asleep");
  asleep_();
  EXPECT_EQ(first->status, 200);
  EXPECT_EQ(second->status, 200);
  EXPECT_EQ(Ask("GET", "/is_sleeping")->body, R"({"is_sleeping":true})");
  EXPECT_THAT(Ask("GET", "/health")->body, HasSubstr("sleeping"));
  const auto third = Ask("POST", "/wake_up"), fourth = Ask("POST", "/wake_up");
  EXPECT_EQ(woken_, 1);
  EXPECT_EQ(Ask("POST", "/sleep")->status, 409);
  EXPECT_EQ(third->status, 0);
  BecomeReady();
  EXPECT_EQ(third->status, 200);
  EXPECT_EQ(fourth->status, 200);
  EXPECT_EQ(Ask("GET", "/is_sleeping")->body, R"({"is_sleeping":false})");
  EXPECT_THAT(awaited_,
              testing::ElementsAre("sleep 1", "sleep 2", "sleep 0", "wake 1", "wake 2", "wake 0"));
  EXPECT_THAT(rested_, testing::ElementsAre("sleep", "sleep", "wake", "wake"));
}

TEST_F(AdminTest, DeepensASleep) {
  BecomeReady();
  const auto first = Ask("POST", "/sleep?level=1");
  EXPECT_EQ(level_, 1);
  const auto second = Ask("POST", "/sleep?level=2");  // while it falls asleep
  std::exchange(asleep_, nullptr)();
  EXPECT_EQ(level_, 2);
  EXPECT_EQ(second->status, 0);
  std::exchange(asleep_, nullptr)();
  EXPECT_EQ(first->status, 200);
  EXPECT_EQ(second->status, 200);
  EXPECT_EQ(Ask("POST", "/sleep?level=1")->status, 200);
  EXPECT_EQ(asleep_, nullptr);
}

TEST_F(AdminTest, DeepensTheSleepOfOneThatSleeps) {
  BecomeReady();
  const auto first = Ask("POST", "/sleep");
  admin_->OnEngineState(EngineState::kSleeping, "asleep");
  std::exchange(asleep_, nullptr)();
  EXPECT_EQ(first->status, 200);
  const auto second = Ask("POST", "/sleep?level=2");
  EXPECT_EQ(level_, 2);
  EXPECT_EQ(second->status, 0);
  std::exchange(asleep_, nullptr)();
  EXPECT_EQ(second->status, 200);
  EXPECT_EQ(Ask("GET", "/is_sleeping")->body, R"({"is_sleeping":true})");
  Ask("POST", "/wake_up");
  EXPECT_EQ(woken_, 1);
  BecomeReady();
  Ask("POST", "/sleep");  // another one begins at the first level
  EXPECT_EQ(level_, 1);
}

TEST_F(AdminTest, AnEngineThatRestartsMeanwhileDoesNotEndASleep) {
  BecomeReady();
  const auto sleeping = Ask("POST", "/sleep");
  admin_->OnEngineState(EngineState::kRestarting, "it fell over");
  BecomeReady();
  EXPECT_EQ(Ask("GET", "/is_sleeping")->body, R"({"is_sleeping":true})");
  asleep_();
  EXPECT_EQ(sleeping->status, 200);
}

TEST_F(AdminTest, RecordsAWindow) {
  EXPECT_EQ(Ask("POST", "/start_profile")->status, 503);
  BecomeReady();
  EXPECT_EQ(Ask("POST", "/stop_profile")->status, 409);
  const auto started = Ask("POST", "/start_profile");
  ASSERT_EQ(started->status, 200) << started->body;
  EXPECT_TRUE(trace::on());
  EXPECT_EQ(Ask("POST", "/start_profile")->status, 409);
  const std::string path = Json::Parse(started->body)->Find("path")->string();
  EXPECT_EQ(std::get<ProfileMessage>(sent_.at(0)).path, path);
  { const TraceSpan span("something"); }
  const auto stopped = Ask("POST", "/stop_profile");
  EXPECT_EQ(std::get<ProfileMessage>(sent_.at(1)).path, "");
  EXPECT_EQ(stopped->status, 0);  // the engine writes first
  EXPECT_TRUE(admin_->OnMessage(ProfiledMessage{}));
  RunUntilAnswered(*stopped);
  EXPECT_EQ(stopped->body, started->body);
  EXPECT_TRUE(Json::ParseFile(path));
  std::filesystem::remove(path);
}

// A pipe takes the place of the file, and takes no more than 64 KiB until it is read.
TEST_F(AdminTest, DoesNotWaitForeverForTheWritingOfAWindow) {
  BecomeReady();
  const std::string path = Json::Parse(Ask("POST", "/start_profile")->body)->Find("path")->string();
  for (int i = 0; i < 3000; ++i) const TraceSpan span("something");
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto stopped = Ask("POST", "/stop_profile");
  admin_->OnMessage(ProfiledMessage{});
  std::promise<void> stopped_waiting;
  std::thread reader([&] {
    stopped_waiting.get_future().wait_for(std::chrono::seconds(20));  // a mistake ends all the same
    std::ifstream pipe(path, std::ios::binary);
    while (pipe.ignore(1 << 20)) {
    }
  });
  EXPECT_FALSE(admin_->Stop(0.01));
  stopped_waiting.set_value();
  RunUntilAnswered(*stopped);
  EXPECT_TRUE(admin_->Stop(60));
  reader.join();
  std::filesystem::remove(path);
}

TEST_F(AdminTest, KeepsItsOwnPartOfAWindowInWhichTheEngineDied) {
  BecomeReady();
  const auto started = Ask("POST", "/start_profile");
  const auto stopped = Ask("POST", "/stop_profile");
  admin_->OnEngineState(EngineState::kRestarting, "it fell over");
  RunUntilAnswered(*stopped);
  EXPECT_EQ(stopped->status, 200);
  EXPECT_THAT(stopped->body, HasSubstr("had written its part"));
  std::filesystem::remove(Json::Parse(started->body)->Find("path")->string());
}

}  // namespace
}  // namespace pinion
