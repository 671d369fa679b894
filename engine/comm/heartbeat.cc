#include "engine/comm/heartbeat.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <set>

#include "engine/base/clock.h"

namespace pinion {

SilenceWatch::SilenceWatch(const std::vector<size_t>& processes, int64_t now_ns)
    : asked_ns_(now_ns) {
  for (const size_t process : processes) heard_ns_.emplace_back(process, now_ns);
}

void SilenceWatch::Heard(size_t process, int64_t now_ns) {
  for (auto& [other, heard_ns] : heard_ns_)
    if (other == process) heard_ns = now_ns;
}

std::optional<size_t> SilenceWatch::Lost(int64_t now_ns) {
  const int64_t since_ns = now_ns - asked_ns_;
  const int64_t late_ns = std::max<int64_t>(0, since_ns - kBeatNs);
  asked_ns_ = now_ns;
  for (auto& [process, heard_ns] : heard_ns_) {
    heard_ns = since_ns > kHeldUpNs ? now_ns : heard_ns + late_ns;
    if (now_ns - heard_ns > kLostNs) return process;
  }
  return std::nullopt;
}

struct Heartbeat::Registry {
  std::mutex mutex;  // of `all`
  std::set<Heartbeat*> all;
};

// Never destroyed, since a heartbeat may be destroyed after exit() has begun.
Heartbeat::Registry& Heartbeat::TheRegistry() {
  static Registry& registry = []() -> Registry& {
    std::atexit([] {
      Registry& here = TheRegistry();
      const std::lock_guard lock(here.mutex);  // to the end: none is destroyed meanwhile
      for (Heartbeat* heartbeat : here.all) heartbeat->End();
      here.all.clear();
    });
    return *new Registry;
  }();
  return registry;
}

Heartbeat::Heartbeat(std::unique_ptr<LifeSigns> signs, std::function<void(size_t process)> on_lost)
    : signs_(std::move(signs)), on_lost_(std::move(on_lost)) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.all.insert(this);
  thread_ = std::thread([this] { Beat(); });
}

Heartbeat::~Heartbeat() {
  {
    Registry& registry = TheRegistry();
    const std::lock_guard lock(registry.mutex);
    if (registry.all.erase(this) == 0) return;  // exit() has ended it
  }
  End();
}

void Heartbeat::End() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();  // it has called exit(), from which it will not return
  else
    thread_.join();
}

bool Heartbeat::OverWithin(int64_t ns) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::nanoseconds(ns), [this] { return over_; });
}

void Heartbeat::Beat() {
  sigset_t all;  // signals are for the threads that wait for them
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  SilenceWatch watch(signs_->watched(), NowNs());
  do {
    signs_->Send();
    for (const size_t process : signs_->Received()) watch.Heard(process, NowNs());
    if (const auto lost = watch.Lost(NowNs())) return on_lost_(*lost);
  } while (!OverWithin(SilenceWatch::kBeatNs));
}

}  // namespace pinion
