#include "harness/load/spread.h"

namespace pinion::harness {

size_t Spread::Choose() {
  size_t chosen = next_;
  for (size_t i = 1; i < under_way_.size(); ++i) {
    const size_t server = (next_ + i) % under_way_.size();
    if (under_way_[server] < under_way_[chosen]) chosen = server;
  }
  next_ = (chosen + 1) % under_way_.size();
  return chosen;
}

}  // namespace pinion::harness
