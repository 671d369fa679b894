#pragma once

// An HTTP server on a thread of its own, with handlers for what its tests ask.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/serve/http.h"
#include "tests/engine/serve/client.h"

namespace pinion {

inline size_t Count(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size())
    ++count;
  return count;
}

// /echo answers the body at once, /stream a stream of two parts, /flood more than any client reads,
// /hold keeps its reply for later, as /events does with a stream that has begun, /who answers what
// is known of the request, /long a stream of many parts of all sizes, /large kLargeBytes at once,
// /burst a stream of three parts, of which the second is large and the others come with it.
class HttpTest : public testing::Test {
 protected:
  void Start(HttpOptions options = {}) {
    options.port = 0;
    auto server = HttpServer::Listen(
        options, [this](HttpRequest request, auto reply) { Handle(request, std::move(reply)); });
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    port_ = server_->port();
    thread_ = std::thread([this] {
      server_->Run();
      returned_ = true;
    });
  }
  void TearDown() override {
    if (!server_) return;
    server_->Post([this] { server_->Stop(); });
    thread_.join();
    held_.clear();
    server_.reset();
  }

  void Handle(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    if (request.path == "/echo") return reply->Send(200, "text/plain", request.body);
    if (request.path == "/large")
      return reply->Send(200, "text/plain", std::string(kLargeBytes, 'x'));
    if (request.path == "/hold") {
      reply->OnGone([this] { ++gone_; });
      held_.push_back(std::move(reply));
      ++holding_;
      return;
    }
    if (request.path == "/who")
      return reply->Send(200, "text/plain",
                         Join({request.method, request.query, request.id, request.client,
                               request.address, std::string(request.headers.Find("x-one"))},
                              "|"));
    if (request.path == "/events") {
      reply->Begin("text/event-stream");
      reply->Write("data: first\n\n");
      held_.push_back(std::move(reply));
      return;
    }
    if (request.path == "/long") {
      reply->Begin("text/plain");
      return Continue(std::move(reply), 0);
    }
    if (request.path == "/stream") {
      reply->Begin("text/event-stream");
      reply->Write("one ");
      server_->Post([reply] {
        reply->Write("two");
        reply->End();
      });
      return;
    }
    if (request.path == "/burst") {
      reply->Begin("text/plain");
      for (const size_t bytes : {size_t{1}, kBurstBytes, kBurstBytes / 4})
        reply->Write(std::string(bytes, 'b'));
      return reply->End();
    }
    if (request.path == "/flood") {
      reply->OnGone([this] { ++gone_; });
      reply->Begin("text/plain");
      return Flood(std::move(reply));
    }
    reply->Send(404, "text/plain", "");
  }

  void Flood(std::shared_ptr<HttpReply> reply) {
    if (gone_ > 0) return;
    reply->Write(std::string(64 << 10, 'x'));
    flooded_bytes_ += 64 << 10;
    server_->Post([this, reply] { Flood(reply); });
  }

  static std::string LongPart(int number) {
    return StrCat('<', number, std::string(static_cast<size_t>(number * 37 % 9000), 'x'), '>');
  }
  static constexpr size_t kLargeBytes = 50'000;
  static constexpr size_t kBurstBytes = size_t{8} << 20;
  static constexpr int kLongParts = 1500;
  void Continue(std::shared_ptr<HttpReply> reply, int number) {
    if (number == kLongParts) {
      reply->End();
      ++long_ended_;
      return;
    }
    reply->Write(LongPart(number));
    server_->Post([this, reply, number] { Continue(reply, number + 1); });
  }

  void WaitFor(const std::atomic<int>& value, int wanted) {
    Await([&] { return value >= wanted; });
    EXPECT_GE(value, wanted);
  }

  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
  std::thread thread_;
  std::atomic<bool> returned_{false};
  std::atomic<int> gone_{0}, holding_{0}, long_ended_{0};
  std::atomic<size_t> flooded_bytes_{0};
  std::vector<std::shared_ptr<HttpReply>> held_;  // of the server's thread
};

}  // namespace pinion
