#include "harness/counters/sampler.h"

#include <chrono>

namespace pinion::harness {

Sampler::Sampler(Read read, double every_s)
    : read_(std::move(read)), every_s_(every_s), thread_([this] { Run(); }) {}

void Sampler::Run() {
  std::unique_lock lock(mutex_);
  do {  // at least one reading, however short the measurement was
    lock.unlock();
    const auto value = read_();
    lock.lock();
    if (value) {
      sum_ += *value;
      ++count_;
    } else {
      last_gap_ = value.error();
    }
    wake_.wait_for(lock, std::chrono::duration<double>(every_s_), [this] { return stopping_; });
  } while (!stopping_);
}

void Sampler::End() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

tl::expected<double, CounterGap> Sampler::Stop() {
  End();
  if (count_ == 0) return tl::unexpected(last_gap_);
  return sum_ / static_cast<double>(count_);
}

}  // namespace pinion::harness
