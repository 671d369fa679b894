#include "harness/load/event_loop.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "engine/base/clock.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::Make(
    std::function<void(int fd, uint32_t events)> on_ready) {
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  Descriptor timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = timer.get();
  if (!epoll.is_open() || !timer.is_open() ||
      epoll_ctl(epoll.get(), EPOLL_CTL_ADD, timer.get(), &event) != 0)
    return Fail(ErrorCode::kFailed, StrCat("cannot wait for connections: ", std::strerror(errno)));
  return std::unique_ptr<EventLoop>(
      new EventLoop(std::move(epoll), std::move(timer), std::move(on_ready)));
}

void EventLoop::Watch(int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  if (events == 0) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, &event);
  } else if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0 && errno == EEXIST) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  }
}

void EventLoop::Turn(int64_t until_ns) {
  Arm(timers_.empty() ? until_ns : std::min(until_ns, timers_.begin()->first));
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), int{events.size()}, -1);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.fd != timer_.get()) {
      on_ready_(event.data.fd, event.events);
      continue;
    }
    uint64_t expirations = 0;
    [[maybe_unused]] const ssize_t ignored = read(timer_.get(), &expirations, sizeof expirations);
    armed_ns_ = kNever;
  }
  CallBack();
}

void EventLoop::Arm(int64_t when_ns) {
  if (when_ns == armed_ns_) return;
  armed_ns_ = when_ns;
  itimerspec spec = {};  // all zero: never
  if (when_ns != kNever) {
    when_ns = std::max<int64_t>(1, when_ns);
    spec.it_value = {when_ns / kNsPerSecond, when_ns % kNsPerSecond};
  }
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

void EventLoop::CallBack() {
  // Timers that callbacks set have their turn later.
  const int64_t now_ns = NowNs();
  while (!timers_.empty() && timers_.begin()->first <= now_ns) {
    const auto due = timers_.extract(timers_.begin());
    due.mapped()();
  }
}

}  // namespace pinion::harness
