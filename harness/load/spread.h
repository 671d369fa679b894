#pragma once

#include <cstddef>
#include <vector>

namespace pinion::harness {

// Chooses a server for each conversation: the one with the fewest requests in flight, of
// equals in round-robin order, like HAProxy's `balance leastconn`. Later turns stay on that server,
// whose prefix cache holds the conversation (HAProxy: a cookie). Thread rule: one thread.
class Spread {
 public:
  explicit Spread(size_t servers) : in_flight_(servers) {}  // at least one

  size_t Choose();
  void Began(size_t server) { ++in_flight_[server]; }
  void Ended(size_t server) { --in_flight_[server]; }

 private:
  std::vector<size_t> in_flight_;
  size_t next_ = 0;
};

}  // namespace pinion::harness
