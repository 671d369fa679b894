#include "harness/profile/keep_running.h"

#include <signal.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr int kBadUsage = 2;

double NowSeconds() { return static_cast<double>(NowNs()) * 1e-9; }

std::string HowItEnded(const Process::Exit& exit) {
  if (exit.signal != 0)
    return StrCat("was ended by signal ", exit.signal, " (", strsignal(exit.signal), ")");
  return StrCat("ended with exit code ", exit.code);
}

// Signals that are waited for instead of being delivered, as long as the object lives. Those that
// the parent has set to be ignored stay so (a shell's `&`, nohup).
class AwaitedSignals {
 public:
  AwaitedSignals() {
    // A parent may have ignored it, and then no exit code of a child would ever be told.
    std::signal(SIGCHLD, SIG_DFL);
    sigemptyset(&awaited_);
    sigaddset(&awaited_, SIGCHLD);  // ends a wait early
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action;
      const bool ignored = sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
      if (!ignored) sigaddset(&awaited_, number);
    }
    pthread_sigmask(SIG_BLOCK, &awaited_, &before_);
  }
  ~AwaitedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AwaitedSignals(const AwaitedSignals&) = delete;
  AwaitedSignals& operator=(const AwaitedSignals&) = delete;

  // The next of them within so many seconds, or 0.
  int Next(double seconds) const {
    const double whole = std::floor(seconds);
    const timespec limit{static_cast<time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
    const int number = sigtimedwait(&awaited_, nullptr, &limit);
    return number > 0 ? number : 0;
  }

 private:
  sigset_t awaited_, before_;
};

class Keeper {
 public:
  Keeper(const Command& server, KeepRunningOptions options, AnswersAs is_ready)
      : options_(std::move(options)), is_ready_(std::move(is_ready)) {
    server_.arguments = server.arguments;
    server_.environment = server.environment;
  }

  Result<int> Run() {
    for (;;) {
      const std::optional<Process::Exit> exit = RunOnce();
      if (asked_to_end_) return exit && !EndedAsAsked(*exit) ? std::max(1, exit->code) : 0;
      if (exit && exit->signal == 0 && (exit->code == 0 || exit->code == kBadUsage))
        return exit->code;
      failed_starts_ = was_ready_now_ ? 0 : failed_starts_ + 1;
      const int most = was_ready_ ? options_.most_failed_restarts : options_.most_failed_starts;
      if (failed_starts_ >= most)
        return Fail(ErrorCode::kFailed,
                    StrCat("the server was not ready ", most, " times in a row, and the last time ",
                           why_, ": fix the error printed above and launch again"));
      const double pause_s = *options_.pauses.Died(NowSeconds());
      LogError(StrCat("the server ", why_, "; starting it again in ", pause_s, " s"));
      if (EndsWithin(pause_s)) return 0;
    }
  }

 private:
  static bool EndedAsAsked(const Process::Exit& exit) {
    return exit.signal == SIGTERM || exit.signal == SIGINT || (exit.signal == 0 && exit.code == 0);
  }

  // How it ended, which `why_` says in words; nothing: it was not started.
  std::optional<Process::Exit> RunOnce() {
    was_ready_now_ = false;
    if (is_ready_(0)) {  // and would be taken for ours
      why_ = "was not started because another one answers at its address";
      return std::nullopt;
    }
    auto process = Process::Start(server_);
    if (!process) {
      why_ = StrCat("could not be started (", process.error().message, ")");
      return std::nullopt;
    }
    // Processes that it leaves behind would be in the next one's way.
    std::optional<Process::Exit> exit;
    while (!(exit = process->WaitAndEndGroup(0))) {
      if (!was_ready_now_ && is_ready_(process->pid())) NoteReady();
      const int number = signals_.Next(options_.look_s);
      if (number == SIGHUP) process->Signal(number);  // to open its log anew
      if (number != SIGTERM && number != SIGINT) continue;
      asked_to_end_ = true;
      process->Signal(number);
    }
    why_ = HowItEnded(*exit);
    return exit;
  }

  void NoteReady() {
    was_ready_ = was_ready_now_ = true;
    options_.pauses.Ready(NowSeconds());
  }

  bool EndsWithin(double seconds) {
    const int64_t began_ns = NowNs();
    for (double left = seconds; left > 0; left = seconds - SecondsSince(began_ns))
      if (const int number = signals_.Next(left); number == SIGTERM || number == SIGINT)
        return true;
    return false;
  }

  KeepRunningOptions options_;
  const AnswersAs is_ready_;
  Process::Options server_;
  const AwaitedSignals signals_;
  int failed_starts_ = 0;  // in a row
  bool was_ready_ = false, was_ready_now_ = false, asked_to_end_ = false;
  std::string why_;
};

}  // namespace

Result<int> KeepRunning(const Command& server, KeepRunningOptions options, AnswersAs is_ready) {
  return Keeper(server, std::move(options), std::move(is_ready)).Run();
}

}  // namespace pinion::harness
