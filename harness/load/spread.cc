#include "harness/load/spread.h"

namespace pinion::harness {

size_t Spread::Choose() {
  size_t chosen = next_;
  for (size_t i = 1; i < in_flight_.size(); ++i) {
    const size_t server = (next_ + i) % in_flight_.size();
    if (in_flight_[server] < in_flight_[chosen]) chosen = server;
  }
  next_ = (chosen + 1) % in_flight_.size();
  return chosen;
}

}  // namespace pinion::harness
