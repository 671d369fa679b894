#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/restart_policy.h"
#include "engine/base/result.h"
#include "engine/serve/engine_link.h"
#include "engine/serve/engine_process.h"
#include "engine/serve/engine_state.h"
#include "engine/serve/heartbeat.h"
#include "engine/serve/http.h"

namespace pinion {

// Starts the engine process and keeps one running: when it dies or hangs, loading or later, it is
// replaced, with growing delays, until that has happened too often. Nothing here waits: processes
// are reaped by polling from the event loop. Thread rule: the server's event loop.
class EngineSupervisor {
 public:
  struct Options {
    std::vector<std::string> command;
    std::vector<int> cpus = {};  // that the process may use; none: the caller's
    std::vector<std::pair<std::string, std::string>> environment = {};  // added to the caller's
    // Without a sign of life from the process (see Heartbeat).
    double engine_timeout_s = 60;
    // Much of loading counts as progress, but not all: finding files, or measuring kernels.
    double least_loading_timeout_s = 30;
    RestartPolicy restarts{5};
    int weights_fd = -1;  // becomes each process's kEngineWeightsFd; the caller's
  };
  struct Callbacks {
    // Anything but Pong and Failed. The ReadyMessage comes before its state.
    std::function<void(LinkMessage)> message;
    // `public_reason` may be shown to clients: it quotes nothing of the engine's log.
    std::function<void(EngineState, const std::string& public_reason)> state;
    // The first process has ended by itself before it was ready: there will be no other.
    std::function<void(Error)> cannot_start;
  };

  // The server outlives the object or, before it goes, Close is called.
  EngineSupervisor(HttpServer& server, Options options, Callbacks callbacks);
  ~EngineSupervisor() { Close(0); }
  EngineSupervisor(const EngineSupervisor&) = delete;
  EngineSupervisor& operator=(const EngineSupervisor&) = delete;

  // Starts the first process; an error if that is impossible.
  Status Start();
  // From the next start on.
  void SetCommand(std::vector<std::string> command) { options_.command = std::move(command); }
  // Does nothing while there is no engine.
  void Send(const LinkMessage& message);

  // Ends the process, as a sleep or for good, and calls `done` when it is gone and its memory free.
  void Sleep(std::function<void()> done);
  // Starts a process after Sleep.
  void Wake();
  // When Run has returned: closes the link, by which the engine ends itself, and waits up to
  // `seconds` for that; then kills it. Nothing is called back any more.
  void Close(double seconds);

  EngineState state() const { return state_; }
  // Until the next start that may succeed, as clients are told.
  double retry_after_s() const { return retry_after_s_; }

 private:
  Status Launch();
  void OnMessage(LinkMessage message);
  // The engine has closed the link, or broken its protocol.
  void OnClosed(const std::string& error);
  // The process is of no use any more: the state tells so at once. It gets up to `patience_s` to
  // end.
  void OnGone(double patience_s);
  void Enter(EngineState state, const std::string& public_reason);
  void GiveUp();
  // Waits for the process to end, and kills it once `patience_s` is over. Takes the place of an
  // earlier wait.
  void Reap(double patience_s);
  void PollForEnd(uint64_t wait, double patience_s);
  void OnReaped(const Process::Exit& exit);
  void OnDead(const std::string& why);
  void LogDeath(const std::string& why) const;
  void Restart();
  void Tick();
  void OnSilence();
  void DropLink();

  HttpServer& server_;
  Options options_;
  Callbacks callbacks_;
  RestartPolicy policy_;
  Heartbeat heartbeat_;
  std::optional<EngineProcess> engine_;
  std::shared_ptr<EngineLink> link_;
  EngineState state_ = EngineState::kStarting;
  bool was_ready_ = false;  // some process was
  bool silent_ = false;     // this one was killed for it
  bool closing_ = false;
  bool ticking_ = false;
  std::optional<Error> failed_;  // what the process itself gave as the reason
  std::optional<double> delay_;  // until the next start; none: there will be no other
  double retry_after_s_ = 1;
  uint64_t pings_ = 0;
  uint64_t waits_ = 0;  // Reap's: only the last one goes on
  std::function<void()> asleep_;
};

}  // namespace pinion
