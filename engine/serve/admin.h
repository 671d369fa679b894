#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/base/json.h"
#include "engine/serve/engine_state.h"
#include "engine/serve/http.h"
#include "engine/serve/link.h"
#include "engine/serve/openapi.h"
#include "engine/serve/options.h"

namespace pinion {

// The endpoints about the server itself: health, version, machine, sleep, profiling. Those with
// which one client could hurt others exist only if their flag is given. Thread rule: the server's
// event loop.
class AdminApi {
 public:
  struct Actions {
    std::function<void(const LinkMessage&)> send;
    // Ends the engine process once live requests are done, and calls `done` when it is gone.
    // Level 2 lets go of the model's files in the page cache as well.
    std::function<void(int level, std::function<void()> done)> sleep;
    std::function<void()> wake_up;
    // For the metrics: how many requests wait for "sleep" or "wake", and how long one has waited.
    std::function<void(const char* operation, size_t requests)> awaited = [](auto...) {};
    std::function<void(const char* operation, double seconds)> rested = [](auto...) {};
  };

  // The front end's part of /server_info, and whether `/` answers with the page.
  struct Facts {
    Json machine = {}, budget = {},
         profile = {};  // MachineLayout, the budget, ServeOptions::profile
    bool page = false;
  };

  // The server outlives the object.
  AdminApi(HttpServer& server, const FaultOptions& options, Actions actions, Facts facts);
  ~AdminApi();
  AdminApi(const AdminApi&) = delete;
  AdminApi& operator=(const AdminApi&) = delete;

  // False: the path belongs to somebody else.
  bool Handle(const HttpRequest& request, std::shared_ptr<HttpReply>& reply);
  bool Knows(std::string_view path) const;
  std::vector<EndpointFacts> Offered() const;
  // Every message of the engine. True: it was an answer to a question asked here.
  bool OnMessage(const LinkMessage& message);
  void OnEngineState(EngineState state, const std::string& public_reason);

  // When Run has returned: waits up to `seconds` for a recording that is being written. False: it
  // still is, so the process can only end without destroying this object, which would wait on.
  bool Stop(double seconds);

 private:
  using Reply = std::shared_ptr<HttpReply>;
  struct Endpoint {
    EndpointFacts facts;
    void (AdminApi::*handle)(const HttpRequest&, Reply);
  };

  void Page(const HttpRequest& request, Reply reply);
  void Health(const HttpRequest& request, Reply reply);
  void Version(const HttpRequest& request, Reply reply);
  void ServerInfo(const HttpRequest& request, Reply reply);
  Json WholeInfo() const;
  void Sleep(const HttpRequest& request, Reply reply);
  void FallAsleep();
  void WakeUp(const HttpRequest& request, Reply reply);
  void IsSleeping(const HttpRequest& request, Reply reply);
  // Requests that wait for one operation of sleep mode, with their arrival.
  struct SleepWaiters {
    const char* operation;
    std::vector<std::pair<Reply, int64_t>> requests = {};
  };
  void Await(SleepWaiters& waiters, Reply reply);
  void Finish(SleepWaiters& waiters, int status, const std::string& error);
  void ResetPrefixCache(const HttpRequest& request, Reply reply);
  void StartProfile(const HttpRequest& request, Reply reply);
  void StopProfile(const HttpRequest& request, Reply reply);
  // The engine has written its part, or could not: the front end adds its own.
  void WriteProfile(std::string engine_error);

  bool ready() const { return state_ == EngineState::kReady; }

  HttpServer& server_;
  const FaultOptions options_;
  const Actions actions_;
  const Facts facts_;
  std::vector<Endpoint> endpoints_;
  EngineState state_ = EngineState::kStarting;
  std::string reason_ = "the model is still loading";

  Json info_;
  int64_t info_ns_ = 0;          // when it was taken
  bool info_asked_ = false;      // an answer is under way
  std::vector<Reply> for_info_;  // that wait for it
  EngineStats stats_;
  std::vector<Reply> for_reset_;

  enum class Rest { kAwake, kFallingAsleep, kAsleep, kWaking } rest_ = Rest::kAwake;
  int level_ = 0, wanted_level_ = 0;  // of this sleep: reached, and asked for
  SleepWaiters for_sleep_{"sleep"}, for_wake_{"wake"};

  enum class Profile { kOff, kOn, kStopping } profile_ = Profile::kOff;
  int profiles_ = 0;
  std::string profile_path_;
  Reply for_profile_;
  std::thread writer_;
  std::future<void> written_;  // by the writer
};

}  // namespace pinion
