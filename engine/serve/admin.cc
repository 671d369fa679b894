#include "engine/serve/admin.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/base/version.h"
#include "engine/serve/http_refusal.h"
#include "engine/serve/page.h"
#include "engine/serve/schema.h"

namespace pinion {
namespace {

constexpr double kInfoSeconds = 5;  // the age up to which /server_info is answered from memory

void AnswerJson(HttpReply& reply, int status, const Json& body) {
  reply.Send(status, "application/json", body.Dump());
}

void Refuse(HttpReply& reply, int status, std::string message) {
  AnswerJson(reply, status, ToJson(ApiError{status, std::move(message), "", ""}));
}

void AnswerAll(std::vector<std::shared_ptr<HttpReply>>& replies, int status,
               const std::string& error) {
  for (const auto& reply : std::exchange(replies, {})) {
    if (error.empty())
      reply->Send(status, "text/plain", "");
    else
      Refuse(*reply, status, error);
  }
}

const char* Name(EngineState state) {
  switch (state) {
    case EngineState::kStarting:
      return "starting";
    case EngineState::kReady:
      return "ready";
    case EngineState::kRestarting:
      return "restarting";
    case EngineState::kSleeping:
      return "sleeping";
    case EngineState::kFailed:
      return "failed";
  }
  return "";
}

Json CountsOf(const EngineStats& stats) {
  const auto number = [](uint64_t value) { return Json(value); };
  return Json(Json::Object{{"running", number(stats.scheduler.running)},
                           {"waiting", number(stats.scheduler.waiting)},
                           {"preemptions", number(stats.scheduler.preemptions)},
                           {"steps", number(stats.steps)},
                           {"bounded_steps", number(stats.scheduler.bounded_steps)},
                           {"bound_seconds", Json(stats.scheduler.bound_s)},
                           {"prompt_tokens", number(stats.prompt_tokens)},
                           {"output_tokens", number(stats.output_tokens)},
                           {"blocks_used", number(stats.blocks_used)},
                           {"blocks_total", number(stats.blocks_total)},
                           {"prefix_query_tokens", number(stats.kv.prefix_query_tokens)},
                           {"prefix_hit_tokens", number(stats.kv.prefix_hit_tokens)}});
}

// The value of `name` in "a=1&b=2"; "" if absent.
std::string_view Parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    const size_t equals = part.find('=');
    if (equals != part.npos && part.substr(0, equals) == name) return part.substr(equals + 1);
  }
  return "";
}

}  // namespace

AdminApi::AdminApi(HttpServer& server, const FaultOptions& options, Actions actions, Facts facts)
    : server_(server), options_(options), actions_(std::move(actions)), facts_(std::move(facts)) {
  const EndpointFacts health = {.path = "/health",
                                .method = "GET",
                                .summary = "Whether the model answers",
                                .media = "text/plain",
                                .failure = Failure::kState};
  EndpointFacts health_of_llama = health;
  health_of_llama.path = "/v1/health";
  EndpointFacts ping = health;
  ping.path = "/ping";
  EndpointFacts ping_by_post = ping;  // as SageMaker's containers answer
  ping_by_post.method = "POST";
  const QueryParameter level = {"level", R"({"type":"integer","enum":[1,2]})"};
  endpoints_ = {{health, &AdminApi::Health},
                {health_of_llama, &AdminApi::Health},
                {ping, &AdminApi::Health},
                {ping_by_post, &AdminApi::Health},
                {{"/version", "GET", "The server's version"}, &AdminApi::Version},
                {{"/server_info", "GET", "Model, machine and settings of the server"},
                 &AdminApi::ServerInfo}};
  if (facts_.page)
    endpoints_.push_back({{"/", "GET", "A page for people", {}, "text/html"}, &AdminApi::Page});
  if (options_.enable_sleep_mode)
    endpoints_.insert(
        endpoints_.end(),
        {{{"/sleep", "POST", "Give the model's memory back", {}, "text/plain", level},
          &AdminApi::Sleep},
         {{"/wake_up", "POST", "Load the model again", {}, "text/plain"}, &AdminApi::WakeUp},
         {{"/is_sleeping", "GET", "Whether the server sleeps"}, &AdminApi::IsSleeping}});
  if (options_.enable_cache_reset)
    endpoints_.push_back({{"/reset_prefix_cache", "POST", "Forget all cached prefixes"},
                          &AdminApi::ResetPrefixCache});
  if (!options_.profile_dir.empty())
    endpoints_.insert(
        endpoints_.end(),
        {{{"/start_profile", "POST", "Begin a recording"}, &AdminApi::StartProfile},
         {{"/stop_profile", "POST", "End and write the recording"}, &AdminApi::StopProfile}});
}

AdminApi::~AdminApi() {
  if (writer_.joinable()) writer_.join();
}

bool AdminApi::Stop(double seconds) {
  if (!writer_.joinable()) return true;
  if (written_.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready)
    return false;
  writer_.join();
  return true;
}

bool AdminApi::Handle(const HttpRequest& request, Reply& reply) {
  std::string methods;  // that the path has
  for (const Endpoint& endpoint : endpoints_) {
    if (request.path != endpoint.facts.path) continue;
    methods += StrCat(methods.empty() ? "" : ", ", endpoint.facts.method);
    if (request.method != endpoint.facts.method) continue;
    (this->*endpoint.handle)(request, std::move(reply));
    return true;
  }
  if (methods.empty()) return false;
  RefuseMethod(*reply, request, methods);
  return true;
}

bool AdminApi::Knows(std::string_view path) const {
  return std::any_of(endpoints_.begin(), endpoints_.end(),
                     [path](const Endpoint& one) { return one.facts.path == path; });
}

std::vector<EndpointFacts> AdminApi::Offered() const {
  std::vector<EndpointFacts> offered;
  for (const Endpoint& endpoint : endpoints_) offered.push_back(endpoint.facts);
  return offered;
}

void AdminApi::OnEngineState(EngineState state, const std::string& public_reason) {
  state_ = state;
  reason_ = public_reason;
  if (ready()) {
    if (rest_ == Rest::kWaking) rest_ = Rest::kAwake;
    Finish(for_wake_, 200, "");
    return;
  }
  // The engine that was asked is gone.
  info_asked_ = false;
  AnswerAll(for_info_, 503, reason_);
  AnswerAll(for_reset_, 503, reason_);
  if (state == EngineState::kFailed) Finish(for_wake_, 503, reason_);
  if (profile_ == Profile::kStopping && for_profile_)
    WriteProfile("the engine process ended before it had written its part");
}

bool AdminApi::OnMessage(const LinkMessage& message) {
  const std::string* text = nullptr;
  if (const auto* batch = std::get_if<EventsMessage>(&message)) stats_ = batch->stats;
  if (const auto* ready = std::get_if<ReadyMessage>(&message)) text = &ready->server_info;
  const auto* info = std::get_if<InfoMessage>(&message);
  if (info) text = &info->server_info;
  if (text) {
    if (auto parsed = Json::Parse(*text)) info_ = std::move(*parsed);
    info_ns_ = NowNs();
    info_asked_ = false;
    const Json body = WholeInfo();
    for (const Reply& reply : std::exchange(for_info_, {})) AnswerJson(*reply, 200, body);
  }
  const auto* profiled = std::get_if<ProfiledMessage>(&message);
  if (profiled && profile_ == Profile::kStopping) WriteProfile(profiled->error);
  const auto* reset = std::get_if<CacheResetMessage>(&message);
  if (reset)
    for (const Reply& reply : std::exchange(for_reset_, {}))
      AnswerJson(*reply, 200, Json(Json::Object{{"success", Json(reset->whole)}}));
  return info || profiled || reset;
}

void AdminApi::Page(const HttpRequest&, Reply reply) { SendPage(*reply); }

void AdminApi::Health(const HttpRequest&, Reply reply) {
  if (ready() && rest_ == Rest::kFallingAsleep)  // new requests are refused already
    return AnswerJson(*reply, 503,
                      Json(Json::Object{{"status", Name(EngineState::kSleeping)},
                                        {"reason", "the server falls asleep"}}));
  if (ready()) return reply->Send(200, "text/plain", "");
  AnswerJson(*reply, 503, Json(Json::Object{{"status", Name(state_)}, {"reason", reason_}}));
}

void AdminApi::Version(const HttpRequest&, Reply reply) {
  AnswerJson(*reply, 200, Json(Json::Object{{"version", pinion::Version()}}));
}

void AdminApi::ServerInfo(const HttpRequest&, Reply reply) {
  if (!ready()) return Refuse(*reply, 503, reason_);
  if (SecondsSince(info_ns_) < kInfoSeconds) return AnswerJson(*reply, 200, WholeInfo());
  for_info_.push_back(std::move(reply));
  if (!std::exchange(info_asked_, true)) actions_.send(InfoRequestMessage{});
}

Json AdminApi::WholeInfo() const {
  Json info = info_;
  info.Set("stats", CountsOf(stats_));
  info.Set("machine", facts_.machine);
  info.Set("budget", facts_.budget);
  info.Set("profile", facts_.profile);
  return info;
}

void AdminApi::Sleep(const HttpRequest& request, Reply reply) {
  const std::string_view level = Parameter(request.query, "level");
  if (!level.empty() && level != "1" && level != "2")
    return Refuse(*reply, 400,
                  StrCat("level is '", level.substr(0, 20),
                         "', want 1 (the weights stay in the page cache) or 2 (they do not)"));
  const int wanted = level == "2" ? 2 : 1;
  if (rest_ == Rest::kAsleep && wanted <= level_) return reply->Send(200, "text/plain", "");
  if (rest_ == Rest::kAwake && !ready()) return Refuse(*reply, 503, reason_);
  if (rest_ == Rest::kWaking)
    return Refuse(*reply, 409, "the server is waking up; try again once it is awake");
  Await(for_sleep_, std::move(reply));
  if (rest_ == Rest::kAwake) level_ = wanted_level_ = 0;
  wanted_level_ = std::max(wanted_level_, wanted);
  if (std::exchange(rest_, Rest::kFallingAsleep) != Rest::kFallingAsleep) FallAsleep();
}

void AdminApi::FallAsleep() {
  actions_.sleep(wanted_level_, [this, level = wanted_level_] {
    level_ = level;
    if (level_ < wanted_level_) return FallAsleep();  // somebody has asked for more meanwhile
    rest_ = Rest::kAsleep;
    Finish(for_sleep_, 200, "");
  });
}

void AdminApi::WakeUp(const HttpRequest&, Reply reply) {
  if (rest_ == Rest::kAwake) return reply->Send(200, "text/plain", "");
  if (rest_ == Rest::kFallingAsleep)
    return Refuse(*reply, 409, "the server is falling asleep; try again once it sleeps");
  Await(for_wake_, std::move(reply));
  if (std::exchange(rest_, Rest::kWaking) == Rest::kAsleep) actions_.wake_up();
}

void AdminApi::Await(SleepWaiters& waiters, Reply reply) {
  waiters.requests.emplace_back(std::move(reply), NowNs());
  actions_.awaited(waiters.operation, waiters.requests.size());
}

void AdminApi::Finish(SleepWaiters& waiters, int status, const std::string& error) {
  if (waiters.requests.empty()) return;
  std::vector<Reply> replies;
  for (auto& [reply, arrival_ns] : std::exchange(waiters.requests, {})) {
    actions_.rested(waiters.operation, SecondsSince(arrival_ns));
    replies.push_back(std::move(reply));
  }
  actions_.awaited(waiters.operation, 0);
  AnswerAll(replies, status, error);
}

void AdminApi::IsSleeping(const HttpRequest&, Reply reply) {
  AnswerJson(*reply, 200, Json(Json::Object{{"is_sleeping", Json(rest_ != Rest::kAwake)}}));
}

void AdminApi::ResetPrefixCache(const HttpRequest&, Reply reply) {
  if (!ready()) return Refuse(*reply, 503, reason_);
  for_reset_.push_back(std::move(reply));
  if (for_reset_.size() == 1) actions_.send(ResetCacheMessage{});
}

void AdminApi::StartProfile(const HttpRequest&, Reply reply) {
  if (!ready()) return Refuse(*reply, 503, reason_);
  if (profile_ != Profile::kOff || trace::on())
    return Refuse(*reply, 409, "a recording is under way already; end it first");
  profile_path_ = StrCat(options_.profile_dir, "/profile-", getpid(), "-", ++profiles_, ".json");
  if (auto begun = trace::Begin(profile_path_, "front end"); !begun)
    return Refuse(*reply, 500, begun.error().message);
  profile_ = Profile::kOn;
  actions_.send(ProfileMessage{profile_path_});
  AnswerJson(*reply, 200, Json(Json::Object{{"path", profile_path_}}));
}

void AdminApi::StopProfile(const HttpRequest&, Reply reply) {
  if (profile_ != Profile::kOn)
    return Refuse(*reply, 409, "no recording is under way; POST /start_profile begins one");
  profile_ = Profile::kStopping;
  for_profile_ = std::move(reply);
  if (!ready()) return WriteProfile("there is no engine process");
  actions_.send(ProfileMessage{});  // its part first: the two must not write at once
}

void AdminApi::WriteProfile(std::string engine_error) {
  if (!for_profile_) return;  // its writing has begun
  if (writer_.joinable()) writer_.join();
  std::promise<void> written;
  written_ = written.get_future();
  // Formatting takes a while, in which the event loop must not stand still.
  writer_ =
      std::thread([this, reply = std::exchange(for_profile_, nullptr),
                   engine_error = std::move(engine_error), written = std::move(written)]() mutable {
        auto ended = trace::End();
        std::string error = ended ? "" : ended.error().message;
        // The reply moves on, so that it ends on the event loop's thread.
        server_.Post([this, reply = std::move(reply), engine_error, error] {
          profile_ = Profile::kOff;
          if (!error.empty()) return Refuse(*reply, 500, error);
          Json answer(Json::Object{{"path", profile_path_}});
          if (!engine_error.empty()) answer.Set("engine", engine_error);
          AnswerJson(*reply, 200, answer);
        });
        written.set_value();
      });
}

}  // namespace pinion
