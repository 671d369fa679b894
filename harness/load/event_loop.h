#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "engine/base/descriptor.h"
#include "engine/base/result.h"

namespace pinion::harness {

// Waits for descriptors and for times, with epoll and one timerfd: times are exact to microseconds,
// and the cost of a turn grows with ready descriptors, not with watched ones. Thread rule: one
// thread.
class EventLoop {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  // Calls `on_ready(fd, events)` for every descriptor that is ready, with epoll's bits. Errors
  // (kFailed): no descriptors left.
  static Result<std::unique_ptr<EventLoop>> Make(
      std::function<void(int fd, uint32_t events)> on_ready);

  void Watch(int fd, uint32_t events);  // 0: no longer
  // Calls back at a time of CLOCK_MONOTONIC, at once if it has passed.
  void At(int64_t when_ns, std::function<void()> callback) {
    timers_.emplace(when_ns, std::move(callback));
  }
  void CancelTimers() { timers_.clear(); }
  bool has_timers() const { return !timers_.empty(); }

  // Waits for a ready descriptor, a time, or `until_ns`; then calls back.
  void Turn(int64_t until_ns);

 private:
  EventLoop(Descriptor epoll, Descriptor timer, std::function<void(int, uint32_t)> on_ready)
      : epoll_(std::move(epoll)), timer_(std::move(timer)), on_ready_(std::move(on_ready)) {}
  void Arm(int64_t when_ns);
  void CallBack();  // for the times that have passed

  const Descriptor epoll_, timer_;
  const std::function<void(int fd, uint32_t events)> on_ready_;
  std::multimap<int64_t, std::function<void()>> timers_;
  int64_t armed_ns_ = kNever;
};

}  // namespace pinion::harness
