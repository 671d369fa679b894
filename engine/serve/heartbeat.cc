#include "engine/serve/heartbeat.h"

#include <utility>

namespace pinion {

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
