#include "engine/serve/restart_policy.h"

#include <algorithm>
#include <utility>

namespace pinion {

std::optional<double> RestartPolicy::Died(double now_s) {
  while (!ends_.empty() && now_s - ends_.front() > window_s_) ends_.pop_front();
  ends_.push_back(now_s);
  if (ends_.size() > static_cast<size_t>(most_)) return std::nullopt;
  if (ready_s_ && now_s - *ready_s_ >= kHealthySeconds) delay_ = first_delay_s_;
  ready_s_.reset();
  return std::exchange(delay_, std::min(2 * delay_, kLongestDelay));
}

Heartbeat::Do Heartbeat::Tick(double now_s, uint64_t progress) {
  if (!heard_s_) return Do::kNothing;
  if (std::exchange(progress_, progress) != progress) heard_s_ = now_s;
  // A late tick means that this process was stopped, and has not yet read what the other one may
  // have answered meanwhile: the silence is counted anew.
  const bool late = last_tick_s_ && now_s - *last_tick_s_ > 2 * period();
  last_tick_s_ = now_s;
  if (late) heard_s_ = now_s;
  if (now_s - *heard_s_ >= timeout_s()) return Do::kKill;
  return loading_ ? Do::kNothing : Do::kPing;
}

}  // namespace pinion
