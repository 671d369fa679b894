#include "engine/comm/traffic.h"

#include <algorithm>
#include <numeric>

#include "engine/base/clock.h"

namespace pinion {
namespace {

constexpr size_t kSmallCalls = 50, kLargeCalls = 5;
constexpr size_t kLargeBytes = size_t{1} << 20;  // of each process

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// The median time of a call in which each process tells `bytes`.
double CallSeconds(Communicator& world, size_t bytes, size_t calls) {
  const std::string mine(bytes, 'x');
  std::string all(bytes * world.processes(), '\0');
  world.Gather(mine.data(), bytes, all.data());  // connections are made at the first use
  std::vector<double> times;
  for (size_t i = 0; i < calls; ++i) {
    const int64_t start_ns = NowNs();
    world.Gather(mine.data(), bytes, all.data());
    times.push_back(Seconds(NowNs() - start_ns));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(calls / 2), times.end());
  return times[calls / 2];
}

}  // namespace

LinkCost MeasureLink(Communicator& world) {
  LinkCost cost;
  cost.call_s = CallSeconds(world, 1, kSmallCalls);
  const double large_s = CallSeconds(world, kLargeBytes, kLargeCalls);
  const auto bytes = static_cast<double>((world.processes() - 1) * kLargeBytes);
  if (large_s > cost.call_s) cost.bytes_per_s = bytes / (large_s - cost.call_s);
  return cost;
}

Json ToJson(const LinkCost& cost) {
  return Json::Object{{"call_s", cost.call_s}, {"bytes_per_s", cost.bytes_per_s}};
}

template <typename Call>
void CountingCommunicator::Count(uint64_t bytes, const Call& call) {
  const int64_t start_ns = NowNs();
  call();
  const double seconds = Seconds(NowNs() - start_ns);
  const std::lock_guard lock(mutex_);
  traffic_.seconds += seconds;
  traffic_.bytes += bytes;
  ++traffic_.calls;
}

Traffic CountingCommunicator::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

void CountingCommunicator::Send(size_t process, int channel, const void* data, size_t bytes) {
  Count(bytes, [&] { world_.Send(process, channel, data, bytes); });
}

void CountingCommunicator::Receive(size_t process, int channel, void* data, size_t bytes) {
  Count(bytes, [&] { world_.Receive(process, channel, data, bytes); });
}

void CountingCommunicator::Gather(const void* mine, size_t bytes, void* all) {
  Count(others() * bytes, [&] { world_.Gather(mine, bytes, all); });
}

void CountingCommunicator::GatherAtLeader(const void* mine, const std::vector<size_t>& bytes,
                                          void* all) {
  const uint64_t sum = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  const uint64_t own = bytes[process()];
  Count(process() == 0 ? sum - own : own, [&] { world_.GatherAtLeader(mine, bytes, all); });
}

void CountingCommunicator::Broadcast(void* data, size_t bytes) {
  Count(process() == 0 ? others() * bytes : bytes, [&] { world_.Broadcast(data, bytes); });
}

}  // namespace pinion
