#include "engine/base/restart_policy.h"

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

}  // namespace pinion
