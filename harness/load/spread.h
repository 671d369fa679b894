#pragma once

#include <cstddef>
#include <vector>

namespace pinion::harness {

// Which of several servers a conversation goes to: the one with the fewest requests under way, of
// equals the next one round, as HAProxy's `balance leastconn` has it. Its later turns stay there,
// where the prefix cache knows them (HAProxy: a cookie). Thread rule: one thread.
class Spread {
 public:
  explicit Spread(size_t servers) : under_way_(servers) {}  // at least one

  size_t Choose();
  void Began(size_t server) { ++under_way_[server]; }
  void Ended(size_t server) { --under_way_[server]; }

 private:
  std::vector<size_t> under_way_;
  size_t next_ = 0;
};

}  // namespace pinion::harness
