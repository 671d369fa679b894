#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/comm/communicator.h"

namespace pinion {

// What a process has exchanged with the others, and what the link between them makes of it.
struct Traffic {
  uint64_t calls = 0;
  uint64_t bytes = 0;  // that came in, or went out to all others, by one call after the other
  double seconds = 0;  // spent in the calls, waiting for the slowest process included

  Traffic operator-(const Traffic& before) const {
    return {calls - before.calls, bytes - before.bytes, seconds - before.seconds};
  }
  Traffic& operator+=(const Traffic& more) {
    calls += more.calls;
    bytes += more.bytes;
    seconds += more.seconds;
    return *this;
  }
};

// A link, as far as calls of small and of large messages show it.
struct LinkCost {
  double call_s = 0;       // of a call with next to no bytes
  double bytes_per_s = 0;  // beyond that; 0: too fast to be measured

  // The time that the link alone needs: what a call takes beyond it is waiting for other processes.
  double SecondsFor(const Traffic& traffic) const {
    return static_cast<double>(traffic.calls) * call_s +
           (bytes_per_s > 0 ? static_cast<double>(traffic.bytes) / bytes_per_s : 0);
  }
};

Json ToJson(const LinkCost& cost);  // {"call_s","bytes_per_s"}

// Collective: all processes call it. It takes 51 calls of a byte and 6 of 1 MiB from each process.
// Medians, so that one late process does not count.
LinkCost MeasureLink(Communicator& world);

// Passes all calls on to another communicator, which must outlive it, and counts them.
class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(Communicator& world) : world_(world) {}

  size_t process() const override { return world_.process(); }
  size_t processes() const override { return world_.processes(); }
  void Gather(const void* mine, size_t bytes, void* all) override;
  void GatherAtLeader(const void* mine, const std::vector<size_t>& bytes, void* all) override;
  void Broadcast(void* data, size_t bytes) override;
  void Send(size_t process, int channel, const void* data, size_t bytes) override;
  void Receive(size_t process, int channel, void* data, size_t bytes) override;
  std::unique_ptr<Communicator> Part(int part) override { return world_.Part(part); }

  Traffic traffic() const;

 private:
  template <typename Call>
  void Count(uint64_t bytes, const Call& call);
  uint64_t others() const { return world_.processes() - 1; }

  Communicator& world_;
  mutable std::mutex mutex_;  // guards traffic_
  Traffic traffic_;
};

}  // namespace pinion
