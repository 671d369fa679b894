#include "engine/serve/supervisor.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/progress.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr double kReapSeconds = 0.02;
constexpr double kEndSeconds = 2;  // for an engine whose link is closed to end itself

constexpr const char* kRestartReason =
    "the engine process ended unexpectedly and is being restarted; send the request again";
constexpr const char* kBrokenReason =
    "the engine process ended unexpectedly too often; the server ends";
constexpr const char* kSleepReason = "the server sleeps; POST /wake_up first";

double Now() { return static_cast<double>(NowNs()) * 1e-9; }

}  // namespace

EngineSupervisor::EngineSupervisor(HttpServer& server, Options options, Callbacks callbacks)
    : server_(server),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      policy_(options_.restarts),
      heartbeat_(options_.engine_timeout_s,
                 std::max(options_.engine_timeout_s, options_.least_loading_timeout_s)) {}

Status EngineSupervisor::Start() { return Launch(); }

Status EngineSupervisor::Launch() {
  failed_.reset();
  silent_ = false;
  PINION_ASSIGN(const auto ends, MakeLinkPair());
  link_ = std::make_shared<EngineLink>(
      server_, ends.first,
      EngineLink::Callbacks{[this](LinkMessage message) { OnMessage(std::move(message)); },
                            [this](const std::string& error) { OnClosed(error); }});
  auto started = EngineProcess::Start(options_.command, options_.cpus, options_.environment,
                                      ends.second, options_.weights_fd);
  if (!started) {
    DropLink();
    return Unexpected(std::move(started).error());
  }
  engine_.emplace(std::move(*started));
  server_.WatchReadable(engine_->log->fd(), [log = engine_->log.get()] { return log->Read(); });
  heartbeat_.Started(Now());
  if (!std::exchange(ticking_, true)) Tick();
  return {};
}

void EngineSupervisor::Send(const LinkMessage& message) {
  if (link_) link_->Send(message);
}

void EngineSupervisor::OnMessage(LinkMessage message) {
  heartbeat_.Heard(Now());
  if (std::holds_alternative<PongMessage>(message)) return;
  if (auto* failed = std::get_if<FailedMessage>(&message)) {
    failed_ = Error{failed->code, std::move(failed->message)};
    return;  // its end follows
  }
  const bool ready = std::holds_alternative<ReadyMessage>(message);
  callbacks_.message(std::move(message));
  if (!ready || state_ == EngineState::kSleeping) return;
  was_ready_ = true;
  policy_.Ready(Now());
  heartbeat_.Ready();
  Enter(EngineState::kReady, "");
}

void EngineSupervisor::OnClosed(const std::string& error) {
  if (!error.empty()) LogError(error);
  OnGone(error.empty() ? kEndSeconds : 0);
}

void EngineSupervisor::OnGone(double patience_s) {
  DropLink();
  heartbeat_.Reset();
  if ((was_ready_ || silent_) && state_ != EngineState::kSleeping) {
    delay_ = policy_.Died(Now());
    delay_ ? Enter(EngineState::kRestarting, kRestartReason) : GiveUp();
  }
  Reap(patience_s);
}

void EngineSupervisor::DropLink() {
  if (!link_) return;
  link_->Close();
  // This may be one of the link's own callbacks, so it goes later.
  server_.Post([gone = std::exchange(link_, nullptr)] {});
}

void EngineSupervisor::Enter(EngineState state, const std::string& public_reason) {
  state_ = state;
  callbacks_.state(state, public_reason);
}

void EngineSupervisor::GiveUp() { Enter(EngineState::kFailed, kBrokenReason); }

void EngineSupervisor::Reap(double patience_s) { PollForEnd(++waits_, patience_s); }

void EngineSupervisor::PollForEnd(uint64_t wait, double patience_s) {
  // An overtaken wait must not outlive its process: it would kill the next one.
  if (closing_ || !engine_ || wait != waits_) return;
  if (const auto exit = engine_->process.Wait(0)) return OnReaped(*exit);
  if (patience_s <= 0) engine_->process.Signal(SIGKILL);
  server_.After(kReapSeconds,
                [this, wait, left = patience_s - kReapSeconds] { PollForEnd(wait, left); });
}

void EngineSupervisor::OnReaped(const Process::Exit& exit) {
  engine_->log->Read();
  const std::string why = Describe(exit, engine_->log->LastLine());
  server_.Unwatch(engine_->log->fd());
  engine_.reset();
  if (state_ == EngineState::kSleeping) {
    if (const auto done = std::exchange(asleep_, nullptr)) done();
    return;
  }
  OnDead(why);
}

void EngineSupervisor::OnDead(const std::string& why) {
  if (!was_ready_ && !silent_) {
    state_ = EngineState::kFailed;
    return callbacks_.cannot_start(failed_.value_or(Error{ErrorCode::kFailed, why}));
  }
  LogDeath(why);
  if (state_ == EngineState::kFailed) return;
  retry_after_s_ = std::max(1.0, 2 * *delay_);
  LogInfo(StrCat("starting the engine process again in ", *delay_, " s"));
  server_.After(*delay_, [this] { Restart(); });
}

void EngineSupervisor::LogDeath(const std::string& why) const {
  const std::string& cause = failed_ ? failed_->message : why;
  if (state_ != EngineState::kFailed) return LogError(cause);
  LogError(StrCat("the engine process ended more than ", policy_.most(),
                  " times within 10 minutes (--max-engine-restarts): the server ends. The last "
                  "time: ",
                  cause));
}

void EngineSupervisor::Restart() {
  if (closing_ || engine_ || state_ == EngineState::kSleeping) return;
  if (auto launched = Launch(); !launched) {
    delay_ = policy_.Died(Now());
    if (!delay_) GiveUp();
    OnDead(launched.error().message);
  }
}

void EngineSupervisor::Sleep(std::function<void()> done) {
  asleep_ = std::move(done);
  Enter(EngineState::kSleeping, kSleepReason);
  heartbeat_.Reset();
  // It ends itself when its link is closed.
  DropLink();
  if (engine_)
    Reap(kEndSeconds);
  else if (const auto now = std::exchange(asleep_, nullptr))
    now();
}

void EngineSupervisor::Wake() {
  if (state_ != EngineState::kSleeping || engine_) return;
  Enter(EngineState::kRestarting, "the server is waking up; try again soon");
  Restart();
}

void EngineSupervisor::Tick() {
  if (closing_) return;
  const auto next = heartbeat_.Tick(Now(), engine_ ? progress::ReadCounts(engine_->progress) : 0);
  if (next == Heartbeat::Do::kPing) Send(PingMessage{++pings_});
  if (next == Heartbeat::Do::kKill && engine_) OnSilence();
  server_.After(heartbeat_.period(), [this] { Tick(); });
}

void EngineSupervisor::OnSilence() {
  LogError(StrCat("the engine process has ",
                  heartbeat_.loading() ? "made no progress in loading"
                                       : "neither answered nor got on with a step",
                  " for ", heartbeat_.timeout_s(), " s (--engine-timeout): killing it"));
  silent_ = true;
  OnGone(0);
}

void EngineSupervisor::Close(double seconds) {
  if (std::exchange(closing_, true)) return;
  link_.reset();  // the engine exits when its link is closed
  if (!engine_) return;
  auto exit = engine_->process.Wait(seconds);
  if (!exit) exit = engine_->process.Stop(0);
  engine_->log->Read();
  if (state_ == EngineState::kFailed) LogDeath(Describe(*exit, engine_->log->LastLine()));
  server_.Unwatch(engine_->log->fd());
  engine_.reset();
}

}  // namespace pinion
