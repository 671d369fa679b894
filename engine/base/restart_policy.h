#pragma once

#include <deque>
#include <optional>

namespace pinion {

// When to start a process again that has ended, and when to give up. Times are seconds on any clock
// that does not jump.
class RestartPolicy {
 public:
  // Gives up at more than `most` ends within `window_s`.
  explicit RestartPolicy(int most, double window_s = 600, double first_delay_s = 0.5)
      : most_(most), window_s_(window_s), first_delay_s_(first_delay_s) {}

  // The process has ended: seconds until the next start, which double with every end up to half a
  // minute; nullopt to give up.
  std::optional<double> Died(double now_s);
  // It works. After a minute of that the next delay is the first one again.
  void Ready(double now_s) { ready_s_ = now_s; }
  int most() const { return most_; }

 private:
  static constexpr double kLongestDelay = 30, kHealthySeconds = 60;

  int most_;
  double window_s_, first_delay_s_;
  std::deque<double> ends_;  // within the window
  double delay_ = first_delay_s_;
  std::optional<double> ready_s_;
};

}  // namespace pinion
