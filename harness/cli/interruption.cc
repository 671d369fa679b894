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

// Those that end us, but for what whoever started us has set to be ignored (a shell's `&`, nohup).
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

// What ends the watcher where nothing has happened; of no use to anybody else.
constexpr int kOver = SIGUSR2;

void Deliver(bool wanted) {
  sigset_t signals = Signals();
  sigaddset(&signals, kOver);
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
  pthread_kill(watcher_.native_handle(), kOver);
  watcher_.join();
  Deliver(true);
}

void Interruption::Watch() {
  sigset_t signals = Signals();
  sigaddset(&signals, kOver);
  int number = 0;
  while (sigwait(&signals, &number) != 0) {
  }
  const std::lock_guard lock(mutex_);  // until the end: the command must not finish meanwhile
  if (over_) return;
  Deliver(true);  // to this thread, where the next one ends everything
  const std::string words = last_words_();
  const Status traced = trace::End();
  std::fflush(stdout);
  if (!traced) Report(traced.error());
  _exit(Report({ErrorCode::kFailed, "interrupted; " + words}));
}

}  // namespace pinion::harness
