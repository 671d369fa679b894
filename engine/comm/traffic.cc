#include "engine/comm/traffic.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/base/clock.h"

namespace pinion {
namespace {

constexpr size_t kSmallCalls = 50, kLargeCalls = 6;
constexpr size_t kLargeBytes = size_t{1} << 20;  // of each process

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// The median time of a call in which each process tells `bytes`, by pairs of calls in a row: of two
// processes, the one that is a little ahead waits longer in one call and less in the next.
double CallSeconds(Communicator& world, size_t bytes, size_t calls) {
  const std::string mine(bytes, 'x');
  std::string all(bytes * world.processes(), '\0');
  world.Gather(mine.data(), bytes, all.data());  // connections are made at the first use
  std::vector<double> pairs;
  double before = 0;
  for (size_t i = 0; i < calls; ++i) {
    const int64_t start_ns = NowNs();
    world.Gather(mine.data(), bytes, all.data());
    const double took = Seconds(NowNs() - start_ns);
    if (i > 0) pairs.push_back((before + took) / 2);
    before = took;
  }
  const auto median = pairs.begin() + static_cast<ptrdiff_t>(pairs.size() / 2);
  std::nth_element(pairs.begin(), median, pairs.end());
  return *median;
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
void CountingCommunicator::Count(uint64_t delays, uint64_t bytes, const Call& call) {
  const int64_t start_ns = NowNs();
  call();
  const double seconds = Seconds(NowNs() - start_ns);
  const std::lock_guard lock(counts_->mutex);
  counts_->traffic += {.calls = 1, .delays = delays, .bytes = bytes, .seconds = seconds};
}

Traffic CountingCommunicator::traffic() {
  const std::lock_guard lock(counts_->mutex);
  counts_->broadcasts = false;
  return counts_->traffic;
}

bool CountingCommunicator::Broadcasts(bool now) {
  const std::lock_guard lock(counts_->mutex);
  return std::exchange(counts_->broadcasts, now);
}

std::unique_ptr<Communicator> CountingCommunicator::Part(int part) {
  return std::unique_ptr<Communicator>(new CountingCommunicator(world_.Part(part), counts_));
}

void CountingCommunicator::Send(size_t process, int channel, const void* data, size_t bytes) {
  Count(0, bytes, [&] { world_.Send(process, channel, data, bytes); });
}

void CountingCommunicator::Receive(size_t process, int channel, void* data, size_t bytes) {
  Count(1, bytes, [&] { world_.Receive(process, channel, data, bytes); });
}

void CountingCommunicator::Gather(const void* mine, size_t bytes, void* all) {
  Broadcasts(false);
  Count(1, others() * bytes, [&] { world_.Gather(mine, bytes, all); });
}

void CountingCommunicator::GatherAtLeader(const void* mine, const std::vector<size_t>& bytes,
                                          void* all) {
  Broadcasts(false);
  const uint64_t sum = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  const uint64_t own = bytes[process()];
  Count(1, process() == 0 ? sum - own : own, [&] { world_.GatherAtLeader(mine, bytes, all); });
}

void CountingCommunicator::Broadcast(void* data, size_t bytes) {
  const uint64_t delays = Broadcasts(true) ? 0 : 1;
  Count(delays, process() == 0 ? others() * bytes : bytes, [&] { world_.Broadcast(data, bytes); });
}

}  // namespace pinion
