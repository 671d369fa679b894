#include "harness/watch/server.h"

#include <signal.h>

#include <atomic>
#include <list>
#include <thread>

#include "engine/serve/gate.h"
#include "engine/serve/http.h"
#include "harness/sweep/load.h"

namespace pinion::harness {
namespace {

class Server final : public WatchServer {
 public:
  Server(const std::string& folder, PageViews views) : folder_(folder), views_(std::move(views)) {}

  Status Listen(uint16_t port) {
    HttpOptions options;
    options.port = port;
    options.max_connections = 64;
    options.check = [this](const HttpHead& head) { return gate_.Check(head); };
    PINION_ASSIGN(http_, HttpServer::Listen(options, [this](HttpRequest request, auto reply) {
                    Answer(request, std::move(reply));
                  }));
    // Signals go to the sweep's thread.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { http_->Run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return {};
  }

  ~Server() override {
    if (!thread_.joinable()) return;
    http_->Post([this] {
      for (const auto& watcher : watchers_) watcher->End();
      http_->Drain(1);
    });
    thread_.join();
  }

  uint16_t port() const override { return http_->port(); }

  void Tell(const std::string& state, bool finished) override {
    std::string text;
    if (watching_ > 0) text = UpdateEvent(state, finished).value_or("");
    http_->Post([this, state, finished, text = std::move(text)]() mutable {
      state_ = state;
      finished_ = finished;
      if (watchers_.empty()) return;
      // A browser that came after watching_ was read would otherwise never hear of this.
      if (text.empty()) text = UpdateEvent(state, finished).value_or("");
      if (text.empty()) return;  // the store is busy; the next trial sends an update again
      for (const auto& watcher : watchers_) watcher->Write(text);
    });
  }

 private:
  // One server-sent event: the page's data for the results so far, and a line of text.
  Result<std::string> UpdateEvent(const std::string& state, bool finished) const {
    PINION_ASSIGN(const Results results, LoadResults(folder_));
    Json update = views_.update(results);
    update.Set("state", state);
    update.Set("finished", finished);
    return "data: " + update.Dump() + "\n\n";
  }

  // The functions below run on the server's thread.
  void Answer(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    constexpr const char* kText = "text/plain; charset=utf-8";
    if (request.method != "GET") return reply->Send(405, kText, "only GET is supported\n");
    if (request.path == "/events") {
      reply->Begin("text/event-stream");
      if (!request.head) Follow(std::move(reply));
      return;
    }
    const bool page = request.path == "/", json = request.path == "/results.json";
    if (!page && !json) return reply->Send(404, kText, "only /, /events and /results.json exist\n");
    const auto results = LoadResults(folder_);
    auto body = !results ? Result<std::string>(Unexpected(results.error()))
                : page   ? views_.page(*results)
                         : views_.json(*results);
    if (!body) return reply->Send(503, kText, body.error().message + "\n");
    reply->Send(200, page ? "text/html; charset=utf-8" : "application/json", std::move(*body));
  }

  void Follow(std::shared_ptr<HttpReply> reply) {
    if (const auto update = UpdateEvent(state_, finished_)) reply->Write(*update);
    watchers_.push_back(reply);
    ++watching_;
    reply->OnGone([this, gone = reply.get()] {
      watchers_.remove_if([&](const auto& watcher) { return watcher.get() == gone; });
      watching_ = static_cast<int>(watchers_.size());
    });
  }

  const std::string folder_;
  const PageViews views_;
  // A page of somebody else's must not read the sweep.
  const Gate gate_{{}, "127.0.0.1", {}};
  std::unique_ptr<HttpServer> http_;
  std::list<std::shared_ptr<HttpReply>> watchers_;
  std::string state_ = "the first trial is running";
  bool finished_ = false;
  std::atomic<int> watching_ = 0;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<WatchServer>> WatchServer::Start(const std::string& folder, PageViews views,
                                                        uint16_t port) {
  auto server = std::make_unique<Server>(folder, std::move(views));
  PINION_TRY(server->Listen(port));
  return server;
}

}  // namespace pinion::harness
