#pragma once

// The whole server in one process: front end and HTTP on one thread, a fake engine behind the link
// on another, clients over loopback.

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/base/strings.h"
#include "engine/serve/admin.h"
#include "engine/serve/engine_link.h"
#include "engine/serve/field_readers.h"
#include "engine/serve/frontend.h"
#include "engine/serve/routes.h"
#include "engine/serve/worker.h"
#include "tests/engine/serve/client.h"
#include "tests/engine/serve/fakes.h"

namespace pinion {

inline constexpr size_t kModelLength = 100;

class FrontendTest : public testing::Test {
 protected:
  void SetUp() override {
    HttpOptions http;
    http.port = 0;
    http.memory = std::make_shared<MemoryBudget>(memory_bytes_);
    server_ = *HttpServer::Listen(http, [this](HttpRequest request, auto reply) {
      router_->Route(std::move(request), std::move(reply));
    });
    ServedModel model{"fake", "somewhere", 257, *ReadApiDefaults(std::nullopt), {}, aliases_};
    pool_ = std::make_unique<WorkerPool>(
        WorkerPool::Options{3, 0, [this](const ChatRequest& chat) { return RenderChat(chat); }});
    frontend_ = std::make_unique<Frontend>(model, tokenizer_, limits_, *pool_, *server_,
                                           http.memory, [this](const LinkMessage& message) {
                                             link_->Send(message);
                                             return size_t{0};
                                           });
    AdminApi::Actions actions;
    actions.send = [this](const LinkMessage& message) { link_->Send(message); };
    admin_ = std::make_unique<AdminApi>(*server_, faults_, std::move(actions), AdminApi::Facts{});
    router_ = std::make_unique<Router>(*admin_, *frontend_);
    const auto ends = *MakeLinkPair();
    link_ = std::make_unique<EngineLink>(
        *server_, ends.first,
        EngineLink::Callbacks{
            [this](LinkMessage message) {
              const bool ready = std::holds_alternative<ReadyMessage>(message);
              if (const auto* batch = std::get_if<EventsMessage>(&message))
                frontend_->metrics().SetEngine(0, batch->stats);
              if (!admin_->OnMessage(message)) frontend_->OnMessage(std::move(message));
              if (ready) Enter(EngineState::kReady, "");
            },
            [this](const std::string&) { Enter(EngineState::kFailed, "the engine died"); }});
    engine_end_ = std::make_unique<LinkSocket>(ends.second);
    port_ = server_->port();
    http_thread_ = std::thread([this] { server_->Run(); });
  }

  void Enter(EngineState state, const std::string& reason) {
    frontend_->OnEngineState(state, reason);
    admin_->OnEngineState(state, reason);
  }

  void StartEngine() {
    engine_end_->Send(ReadyMessage{kModelLength, 1000, 4, "{\"isa\":\"fake\"}"});
    engine_thread_ = std::thread([this] {
      ServeLink(engine_, *engine_end_);
      engine_end_.reset();
    });
    Await([this] { return StatusOf(Get(port_, "/health")) == "200"; });
  }

  void TearDown() override {
    server_->Post([this] { server_->Stop(); });
    http_thread_.join();
    pool_.reset();
    link_.reset();  // the engine's loop ends with the link
    if (engine_thread_.joinable()) engine_thread_.join();
    server_.reset();
  }

  Result<std::string> RenderChat(const ChatRequest& chat) {
    if (template_ends_.valid()) {
      template_runs_ = 1;
      template_ran_out_ =
          template_ends_.wait_for(std::chrono::seconds(20)) == std::future_status::timeout;
    }
    std::string text;
    for (const Json& message : chat.messages.array()) {
      if (message.Find("role")->string() == "bad")
        return Fail(ErrorCode::kFailed, "TemplateError: bad role");
      text +=
          StrCat(message.Find("role")->string(), ":", TextOfContent(*message.Find("content")), ";");
    }
    return text + (chat.kwargs.Find("add_generation_prompt")->boolean() ? "assistant:" : "");
  }

  Json Ask(std::string_view path, std::string_view body) {
    auto json = Json::Parse(BodyOf(Post(port_, path, body)));
    EXPECT_TRUE(json) << body;
    return json ? *json : Json();
  }
  std::string TextOf(const Json& answer, size_t choice = 0) {
    const Json* choices = answer.Find("choices");
    if (!choices || choices->array().size() <= choice) return "no choice: " + answer.Dump();
    return choices->array()[choice].Find("text")->string();
  }
  // Payloads of the "data:" lines, without chunk framing.
  std::vector<std::string> Events(const std::string& response) {
    std::vector<std::string> events;
    for (size_t at = 0; (at = response.find("data: ", at)) != std::string::npos;) {
      const size_t end = response.find("\n\n", at);
      events.push_back(response.substr(at + 6, end - at - 6));
      at = end;
    }
    return events;
  }
  void WaitFor(const std::atomic<int>& value, int wanted) {
    Await([&] { return value == wanted; });
    EXPECT_EQ(value, wanted);
  }

  // Runs on the event loop's thread, and waits for it.
  void OnLoop(const std::function<void()>& call) {
    std::promise<void> done;
    server_->Post([&] {
      call();
      done.set_value();
    });
    done.get_future().wait();
  }
  void SendPost(RawClient& client, std::string_view body, std::string_view path = "completions") {
    client.Send(StrCat("POST /v1/", path, " HTTP/1.1\r\nContent-Type: application/json\r\n",
                       "Content-Length: ", body.size(), "\r\n\r\n", body));
  }
  std::string Metric(const std::string& name) {
    const std::string all = BodyOf(Get(port_, "/metrics"));
    const size_t at = all.find("\n" + name);
    if (at == std::string::npos) return "no metric " + name;
    const size_t end = all.find('\n', at + 1), value = all.rfind(' ', end);
    return all.substr(value + 1, end - value - 1);
  }

  FrontLimits limits_;
  std::vector<std::string> aliases_;  // of the model
  FaultOptions faults_;
  size_t memory_bytes_ = 64 << 20;
  ByteTokenizer tokenizer_;
  FakeEngine engine_;
  std::shared_future<void> template_ends_;  // unset: templates end at once
  std::atomic<int> template_runs_ = 0;
  std::atomic<bool> template_ran_out_ = false;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Frontend> frontend_;
  std::unique_ptr<AdminApi> admin_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<EngineLink> link_;
  std::unique_ptr<LinkSocket> engine_end_;
  uint16_t port_ = 0;
  std::thread http_thread_, engine_thread_;
};

}  // namespace pinion
