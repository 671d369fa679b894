#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/binding.h"

namespace pinion {

// Holds back each of `count` threads until all have arrived. Spins (tens of nanoseconds when every
// thread has a core), yields after a while so that a shared core is not burnt. Reusable at once.
// What was written before Wait by any thread is visible after it to all.
class SpinBarrier {
 public:
  // 1,024 pauses, 20-40 us: longer than a healthy wait, shorter than a time slice.
  static constexpr int kSpinsBeforeYield = 1024;

  // spins_before_yield 0: for more threads than CPUs, where spinning holds up the one waited for.
  explicit SpinBarrier(int count, int spins_before_yield = kSpinsBeforeYield)
      : count_(count), spins_before_yield_(spins_before_yield) {}
  SpinBarrier(const SpinBarrier&) = delete;
  SpinBarrier& operator=(const SpinBarrier&) = delete;
  void Wait();

 private:
  const int count_;
  const int spins_before_yield_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
};

class WorkShares;

// One thread of one rank's team, as seen by the function it runs.
struct Worker {
  int rank = 0, ranks = 1;
  int thread = 0, threads = 1;   // within the rank
  SpinBarrier* team = nullptr;   // all threads of this rank
  SpinBarrier* all = nullptr;    // all threads of all ranks
  WorkShares* shares = nullptr;  // of this rank

  void TeamBarrier() const { team->Wait(); }
  void GlobalBarrier() const { all->Wait(); }

  // This thread's part [first, second) of `items`, contiguous and as even as possible.
  std::pair<size_t, size_t> Slice(size_t items) const {
    const auto t = static_cast<size_t>(thread), n = static_cast<size_t>(threads);
    return {items * t / n, items * (t + 1) / n};
  }

  // Calls body(begin, end) for chunks of at most `chunk` items until none of the team's `items` is
  // left, those of this thread's Slice first: see WorkShares.
  template <typename Body>
  void Share(size_t items, size_t chunk, const Body& body) const;
};

// How a team divides a phase of its work: every thread takes chunks of its own slice, whose memory
// it touched first; when that is used up, it takes what its next neighbours have not begun of
// theirs. A thread whose core was taken away then keeps the others waiting for the chunk it is in,
// not for its slice. Every thread of the team calls Run with the same numbers, and the team meets
// at a barrier between one Run and the next.
class WorkShares {
 public:
  explicit WorkShares(int threads) : slots_(static_cast<size_t>(threads)) {}

  template <typename Body>
  void Run(const Worker& worker, size_t items, size_t chunk, const Body& body) {
    Slot& own = slots_[static_cast<size_t>(worker.thread)];
    const size_t turn = own.runs++ % 2;
    own.taken[1 - turn].store(0, std::memory_order_relaxed);  // of the next Run: nobody looks yet
    Worker owner = worker;
    for (int i = 0; i < worker.threads && i <= kNeighbours; ++i) {
      owner.thread = (worker.thread + i) % worker.threads;
      const auto [begin, end] = owner.Slice(items);
      std::atomic<size_t>& taken = slots_[static_cast<size_t>(owner.thread)].taken[turn];
      // Looked at before it is written to: most often there is nothing left.
      while (taken.load(std::memory_order_relaxed) < end - begin) {
        const size_t at = begin + taken.fetch_add(chunk, std::memory_order_relaxed);
        if (at < end) body(at, std::min(at + chunk, end));
      }
    }
  }

 private:
  // So many cache lines of others are looked at where there is nothing to help with, some 100 ns
  // each, whatever the size of the team.
  static constexpr int kNeighbours = 4;

  // Runs take turns with two counters: one is used while its owner resets the other.
  struct alignas(64) Slot {
    std::atomic<size_t> taken[2] = {0, 0};
    size_t runs = 0;  // its owner's alone
  };
  std::vector<Slot> slots_;
};

template <typename Body>
void Worker::Share(size_t items, size_t chunk, const Body& body) const {
  shares->Run(*this, items, chunk, body);
}

// The thread teams of all ranks: pinned as the plan says (OpenMP makes each team, members are
// pinned once it exists), parked when there is nothing to do.
//
// The calling thread of Start becomes thread 0 of rank 0 and must be the one that calls Run; it is
// pinned too, and its old affinity is restored by the destructor (same thread). Other ranks have
// leader threads. A thread or child process that the caller starts meanwhile inherits its one CPU:
// start helpers before.
class Ranks {
 public:
  // Errors: a CPU that this process may not use, no more threads (OMP_THREAD_LIMIT, ulimit -u).
  static Result<std::unique_ptr<Ranks>> Start(const Plan& plan);
  virtual ~Ranks() = default;

  virtual int count() const = 0;            // of ranks
  virtual int threads(int rank) const = 0;  // of one rank's team

  // Runs body once on every thread of every rank, all at the same time, and returns when all have
  // returned. One parallel region: use the barriers inside rather than several calls. body must not
  // throw.
  virtual void Run(const std::function<void(const Worker&)>& body) = 0;
};

}  // namespace pinion
