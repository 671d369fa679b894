#include "harness/cli/interruption.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "engine/base/trace.h"
#include "harness/cli/commands.h"

namespace pinion::harness {
namespace {

// The signals that end this process, except those that its parent has set to be ignored (a shell's
// `&`, nohup).
sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM}) {
    struct sigaction action;
    const bool ignored = sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!ignored) sigaddset(&signals, number);
  }
  return signals;
}

// Ends the watching thread when no other signal has come; not used otherwise.
constexpr int kStopWatching = SIGUSR2;

void Deliver(bool wanted) {
  sigset_t signals = Signals();
  sigaddset(&signals, kStopWatching);
  pthread_sigmask(wanted ? SIG_UNBLOCK : SIG_BLOCK, &signals, nullptr);
}

}  // namespace

Interruption::Interruption(std::function<std::string()> last_words)
    : last_words_(std::move(last_words)) {
  Deliver(false);
  watcher_ = std::thread([this] { Watch(); });
}

Interruption::~Interruption() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  pthread_kill(watcher_.native_handle(), kStopWatching);
  watcher_.join();
  Deliver(true);
}

void Interruption::Watch() {
  sigset_t signals = Signals();
  sigaddset(&signals, kStopWatching);
  int number = 0;
  while (sigwait(&signals, &number) != 0) {
  }
  const std::lock_guard lock(
      mutex_);  // held to the end, so that the command does not finish meanwhile
  if (over_) return;
  Deliver(true);  // to this thread, so that the next one ends the process
  const std::string words = last_words_();
  const Status traced = trace::End();
  std::fflush(stdout);
  if (!traced) Report(traced.error());
  _exit(Report({ErrorCode::kFailed, "interrupted; " + words}));
}

}  // namespace pinion::harness
