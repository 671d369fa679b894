#pragma once

#include <cstdint>
#include <optional>

namespace pinion {

// Finds out whether a process hangs. It is alive as long as it says something or gets on with its
// work, so neither a long step nor the loading of a large model is taken for death.
class Heartbeat {
 public:
  // loading_timeout_s: until it is ready, when it does things that are not counted one by one.
  Heartbeat(double timeout_s, double loading_timeout_s)
      : timeout_s_(timeout_s), loading_timeout_s_(loading_timeout_s) {}

  enum class Do { kNothing, kPing, kKill };
  // To be called every period(). progress: of the process's work; any change is a sign of life.
  // Nothing happens while there is no process; one that loads is not pinged.
  Do Tick(double now_s, uint64_t progress);
  // A process was started, and loads.
  void Started(double now_s) {
    heard_s_ = now_s;
    loading_ = true;
  }
  // Any message from the process.
  void Heard(double now_s) { heard_s_ = now_s; }
  // It has loaded, and answers pings from now on.
  void Ready() { loading_ = false; }
  // The process is gone.
  void Reset() { heard_s_ = last_tick_s_ = std::nullopt; }
  double period() const { return timeout_s_ / 4; }

  bool loading() const { return loading_; }
  double timeout_s() const { return loading_ ? loading_timeout_s_ : timeout_s_; }

 private:
  const double timeout_s_, loading_timeout_s_;
  std::optional<double> heard_s_, last_tick_s_;
  uint64_t progress_ = 0;
  bool loading_ = false;
};

}  // namespace pinion
