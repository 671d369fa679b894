#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace pinion {

// How processes that compute one model together notice that one of them is lost. A process whose
// host or link is gone leaves the others waiting in a collective call, and no call returns an error
// for it: TCP takes many minutes to give up. So each process gives signs of life, from a thread of
// its own, however long its steps take.

// The way in which signs of life travel. Thread rule: the heartbeat's thread alone, but for its
// making and its end.
class LifeSigns {
 public:
  virtual ~LifeSigns() = default;
  // The processes that this one watches, and that watch it.
  virtual std::vector<size_t> watched() const = 0;
  // Sends a sign to each of them that can take one. Never blocks.
  virtual void Send() = 0;
  // Those of which a sign has arrived since the last call.
  virtual std::vector<size_t> Received() = 0;
};

// Tells which process has been silent for too long.
class SilenceWatch {
 public:
  // A lost host ends the program within 10 s: this long, a beat, and the time to end, which is 3 s
  // by mpirun, and 4 s if the host is busy (tests/e2e/test_hosts.py). On a busy host the thread
  // gets a core late, but not ten times later than it wants one.
  static constexpr int64_t kLostNs = 5'000'000'000, kBeatNs = 500'000'000;

  SilenceWatch(const std::vector<size_t>& processes, int64_t now_ns);
  void Heard(size_t process, int64_t now_ns);
  // The first process of which nothing was heard for kLostNs. To be asked every kBeatNs: time for
  // which a watcher was itself held up does not count, since it has heard no other meanwhile, and
  // the cause may hold up the others; after several beats it begins anew.
  std::optional<size_t> Lost(int64_t now_ns);

 private:
  static constexpr int64_t kHeldUpNs = 4 * kBeatNs;
  std::vector<std::pair<size_t, int64_t>> heard_ns_;  // by process
  int64_t asked_ns_;
};

// The thread that sends and watches, from construction to destruction, or until the process calls
// exit(): objects that it destroys must not be used any more.
class Heartbeat {
 public:
  // `on_lost` runs on the heartbeat's thread, once; it may call exit(), and ends the process.
  Heartbeat(std::unique_ptr<LifeSigns> signs, std::function<void(size_t process)> on_lost);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void End();
  void Beat();
  bool OverWithin(int64_t ns);  // whether the end has come

  const std::unique_ptr<LifeSigns> signs_;
  const std::function<void(size_t)> on_lost_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
  // The heartbeats that exit() has to end.
  struct Registry;
  static Registry& TheRegistry();
};

}  // namespace pinion
