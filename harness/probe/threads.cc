#include "harness/probe/threads.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/base/clock.h"

namespace pinion::harness {
namespace {

// The least time per round of the batches of `rounds` rounds that `batch(rounds)` runs within the
// time of `sampling`. Batches are short, so that one of them is likely to be undisturbed.
template <typename Batch>
double LeastNs(SamplingPlan sampling, int rounds, Batch batch) {
  const int64_t begin_ns = NowNs();
  int64_t least_ns = INT64_MAX;
  do {
    const int64_t start_ns = NowNs();
    batch(rounds);
    least_ns = std::min(least_ns, NowNs() - start_ns);
  } while (SecondsSince(begin_ns) < sampling.samples * sampling.sample_s);
  return static_cast<double>(least_ns) / rounds;
}

// A cache line that two cores pass back and forth. Nothing else is on it, nor on its neighbour,
// which some prefetchers load too.
struct alignas(128) Ball {
  std::atomic<uint32_t> word{0};
};

void AwaitWord(const std::atomic<uint32_t>& word, uint32_t value) {
  while (word.load(std::memory_order_acquire) != value) {
  }
}

}  // namespace

double BarrierNs(Team& team, SamplingPlan sampling) {
  // A batch is one parallel region, whose cost adds a nanosecond to each of 500 rounds.
  return LeastNs(sampling, 500, [&](int rounds) {
    team.Run([rounds](size_t, const Worker& worker) {
      for (int i = 0; i < rounds; ++i) worker.GlobalBarrier();
    });
  });
}

double ForkJoinNs(Team& team, SamplingPlan sampling) {
  return LeastNs(sampling, 50, [&](int rounds) {
    for (int i = 0; i < rounds; ++i) team.Run([](size_t, const Worker&) {});
  });
}

double WakeNs(Team& team) {
  constexpr int kWakes = 41;
  constexpr timespec kAsleepBy = {0, 500'000};  // spinning and yielding end long before
  std::vector<int64_t> sent_ns(kWakes), woken_ns(kWakes);
  std::atomic<int> word{0};  // int, as a futex
  team.Run([&](size_t thread, const Worker&) {
    for (int i = 0; i < kWakes; ++i) {
      if (thread == 0) {
        nanosleep(&kAsleepBy, nullptr);
        sent_ns[static_cast<size_t>(i)] = NowNs();
        word.store(i + 1, std::memory_order_release);
        word.notify_one();
      } else {
        word.wait(i, std::memory_order_acquire);
        woken_ns[static_cast<size_t>(i)] = NowNs();
      }
    }
  });
  std::vector<int64_t> waits_ns;
  for (size_t i = 0; i < kWakes; ++i) waits_ns.push_back(woken_ns[i] - sent_ns[i]);
  std::nth_element(waits_ns.begin(), waits_ns.begin() + kWakes / 2, waits_ns.end());
  return static_cast<double>(waits_ns[kWakes / 2]);
}

double OneWayNs(Team& team, SamplingPlan sampling) {
  Ball ball;
  uint32_t turns = 0;
  return LeastNs(sampling, 500,
                 [&](int rounds) {
                   const uint32_t first = turns;
                   turns += 2 * static_cast<uint32_t>(rounds);
                   team.Run([&, first, rounds](size_t thread, const Worker&) {
                     const uint32_t mine = static_cast<uint32_t>(thread);
                     for (uint32_t i = 0; i < static_cast<uint32_t>(rounds); ++i) {
                       AwaitWord(ball.word, first + 2 * i + mine);
                       ball.word.store(first + 2 * i + mine + 1, std::memory_order_release);
                     }
                   });
                 }) /
         2;
}

}  // namespace pinion::harness
