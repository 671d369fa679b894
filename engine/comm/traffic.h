#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/comm/communicator.h"

namespace pinion {

// Messages that a process has exchanged with the others, and the time spent on them.
struct Traffic {
  uint64_t calls = 0;
  // Messages that were under way one after the other: each call that waits for another process has
  // one. A leader does not wait for its broadcasts, but the result that it waits for next was
  // computed after the broadcast had arrived; several broadcasts in a row are under way at the same
  // time.
  uint64_t delays = 0;
  uint64_t bytes = 0;  // that came in, or went out to all others, by one call after the other
  // Spent in the calls, waiting for the slowest process included; of all threads together, so that
  // it may exceed the time that passed.
  double seconds = 0;

  Traffic operator-(const Traffic& before) const {
    return {calls - before.calls, delays - before.delays, bytes - before.bytes,
            seconds - before.seconds};
  }
  Traffic& operator+=(const Traffic& more) {
    calls += more.calls;
    delays += more.delays;
    bytes += more.bytes;
    seconds += more.seconds;
    return *this;
  }
};

// A link, as far as calls of small and of large messages show it.
struct LinkCost {
  // Of a call with next to no bytes, in which all processes tell each other something: a message
  // that goes one way, as both ways are used at the same time.
  double call_s = 0;
  double bytes_per_s = 0;  // beyond that; 0: too fast to be measured

  // The time that the link alone needs: the rest of the calls' time is waiting for other processes.
  double SecondsFor(const Traffic& traffic) const {
    return static_cast<double>(traffic.delays) * call_s +
           (bytes_per_s > 0 ? static_cast<double>(traffic.bytes) / bytes_per_s : 0);
  }
};

Json ToJson(const LinkCost& cost);  // {"call_s","bytes_per_s"}

// Collective: all processes call it. It takes 51 calls of a byte and 7 of 1 MiB from each process.
// Medians, so that one late process does not count.
LinkCost MeasureLink(Communicator& world);

// Passes all calls on to another communicator, which must outlive it, and counts them together with
// those of its parts, which may outlive it.
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
  std::unique_ptr<Communicator> Part(int part) override;

  // A broadcast that comes after this is not counted as under way with one that came before: what
  // is measured from here on waits for it.
  Traffic traffic();

 private:
  struct Counts {
    std::mutex mutex;  // guards the rest
    Traffic traffic;
    bool broadcasts = false;  // the last collective call since a reading, of any, was a broadcast
  };

  CountingCommunicator(std::unique_ptr<Communicator> part, std::shared_ptr<Counts> counts)
      : part_(std::move(part)), world_(*part_), counts_(std::move(counts)) {}

  template <typename Call>
  void Count(uint64_t delays, uint64_t bytes, const Call& call);
  uint64_t others() const { return world_.processes() - 1; }
  bool Broadcasts(bool now);  // returns what it was before

  const std::unique_ptr<Communicator> part_;  // null: the world is somebody else's
  Communicator& world_;
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace pinion
