#pragma once

// How rates are measured on a team of threads.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/result.h"
#include "engine/host/memory.h"
#include "engine/host/team.h"

namespace pinion::harness {

// A figure is the best of `samples` short samples, because a disturbance can only lower one.
struct SamplingPlan {
  int samples = 5;
  double sample_s = 0.03;
  const Clock* clock = &kMachineClock;
};

inline constexpr size_t kMultiplySteps = 2000;  // of a bite of arithmetic: about 10 us

// The threads of a plan, numbered consecutively: rank 0's first.
class Team {
 public:
  // One rank, pinned to `cpus`; or an engine's plan.
  static Result<Team> Start(const std::vector<int>& cpus);
  static Result<Team> Start(const Plan& plan);

  size_t size() const { return size_; }
  // Runs body(thread) on all threads at once.
  void Run(const std::function<void(size_t thread, const Worker& worker)>& body);

  // Work per second of all threads together. Each repeats bite(thread), 5 us to 1 ms of work,
  // which returns the amount of work.
  double BestRate(SamplingPlan sampling, const std::function<uint64_t(size_t thread)>& bite);

 private:
  std::unique_ptr<Ranks> ranks_;
  std::vector<size_t> first_;  // number of each rank's thread 0
  size_t size_ = 0;
};

// Memory in parts, each on the node of the thread that touched it first.
class Arena {
 public:
  // Only reserves address space.
  static Result<Arena> Allocate(size_t parts, size_t bytes_per_part);
  // Every thread of a team writes its own part. Requires team.size() == parts().
  void Touch(Team& team);

  size_t parts() const { return parts_.size(); }
  size_t bytes_per_part() const { return bytes_per_part_; }
  const std::byte* part(size_t index) const { return parts_[index].data(); }

 private:
  std::vector<Pages> parts_;
  size_t bytes_per_part_ = 0;
};

// Bytes per second that a team reads from memory, with thread t cycling through its
// parts_of_thread[t] (none may be empty).
double BestStreamRate(Team& team, SamplingPlan sampling, const Arena& arena,
                      const std::vector<std::vector<size_t>>& parts_of_thread,
                      void (*stream)(const std::byte* src, size_t bytes));

}  // namespace pinion::harness
