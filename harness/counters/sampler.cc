#include "harness/counters/sampler.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace pinion::harness {

Sampler::Sampler(Read read, double every_s)
    : read_(std::move(read)),
      every_s_(every_s),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

void Sampler::Run(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  do {  // at least one reading, however short the measurement was
    if (const auto value = read_()) {
      sum_ += *value;
      ++count_;
    } else {
      last_gap_ = value.error();
    }
    wake.wait_for(lock, stop, std::chrono::duration<double>(every_s_), [] { return false; });
  } while (!stop.stop_requested());
}

tl::expected<double, CounterGap> Sampler::Stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  if (count_ == 0) return tl::unexpected(last_gap_);
  return sum_ / static_cast<double>(count_);
}

}  // namespace pinion::harness
