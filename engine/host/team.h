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
#include "engine/host/phases.h"

namespace pinion {

// Holds back each of `count` threads until all have arrived. Spins (tens of nanoseconds if every
// thread has a core) and yields after a while, so that a shared core is not wasted. Reusable at
// once. Writes made before Wait by any thread are visible to all after it.
class SpinBarrier {
 public:
  // 1,024 pauses, 20-40 us: longer than a healthy wait, shorter than a time slice.
  static constexpr int kSpinsBeforeYield = 1024;

  // spins_before_yield 0: for more threads than CPUs; spinning would delay the thread waited for.
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

// One thread of one rank's team, as seen by the function it runs.
struct Worker {
  int rank = 0, ranks = 1;
  int thread = 0, threads = 1;  // within the rank
  SpinBarrier* team = nullptr;  // all threads of this rank
  SpinBarrier* all = nullptr;   // all threads of all ranks
  Phases* phases = nullptr;     // of this rank

  void TeamBarrier() const { team->Wait(); }
  void GlobalBarrier() const { all->Wait(); }

  // This thread's part [first, second) of `items`, contiguous and as even as possible.
  std::pair<size_t, size_t> Slice(size_t items) const {
    return SliceOf(items, static_cast<size_t>(thread), static_cast<size_t>(threads));
  }

  // One phase of this rank's work: see Phases.
  template <typename Body>
  void Share(size_t items, size_t chunk, const Body& body,
             PhaseScope scope = PhaseScope::kTeam) const {
    phases->Share(thread, items, chunk, scope, body);
  }
  // The same for many small items, in about four chunks per thread.
  template <typename Body>
  void Share(size_t items, const Body& body, PhaseScope scope = PhaseScope::kTeam) const {
    Share(items, std::max<size_t>(1, items / (4 * static_cast<size_t>(threads))), body, scope);
  }
  template <typename Body>
  void ShareOneByOne(size_t items, const Body& body, PhaseScope scope = PhaseScope::kTeam) const {
    phases->ShareOneByOne(thread, items, scope, body);
  }
  // Calls body() on one of the threads.
  template <typename Body>
  void Once(const Body& body) const {
    ShareOneByOne(1, [&](size_t) { body(); });
  }
};

// The thread teams of all ranks: pinned according to the plan (OpenMP makes each team; its members
// are pinned once it exists), asleep when there is nothing to do.
//
// The calling thread of Start becomes thread 0 of rank 0 and must be the one that calls Run; it is
// pinned too, and its old affinity is restored by the destructor (same thread). Other ranks have
// leader threads. A thread or child process that the caller starts afterwards inherits its single
// CPU: start helpers before.
class Ranks {
 public:
  // Errors: a CPU that this process may not use, too few threads (OMP_THREAD_LIMIT, ulimit -u).
  static Result<std::unique_ptr<Ranks>> Start(const Plan& plan);
  virtual ~Ranks() = default;

  virtual int count() const = 0;            // of ranks
  virtual int threads(int rank) const = 0;  // of one rank's team
  // Seconds for which a thread of the rank's team has waited for phases to end: the mean of its
  // threads since Start.
  virtual double waited_s(int rank) const = 0;

  // Runs body once on every thread of every rank, all at the same time, and returns when all have
  // returned. One parallel region: use phases and barriers inside rather than several calls. body
  // must not throw.
  virtual void Run(const std::function<void(const Worker&)>& body) = 0;
};

}  // namespace pinion
