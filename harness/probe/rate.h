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

// A figure is the best of `samples` short samples: whatever else runs here can only lower one.
struct Effort {
  int samples = 5;
  double sample_s = 0.03;
  const Clock* clock = &kMachineClock;
};

// Threads of a plan, numbered through: rank 0's first.
class Team {
 public:
  // One rank, pinned to `cpus`; or a plan as an engine has it.
  static Result<Team> Start(const std::vector<int>& cpus);
  static Result<Team> Start(const Plan& plan);

  size_t size() const { return size_; }
  // Runs body(thread) on all threads at once.
  void Run(const std::function<void(size_t thread, const Worker& worker)>& body);

  // Work per second of all threads together. Each repeats bite(thread), some 5 us to 1 ms of work,
  // which returns how much that was.
  double BestRate(Effort effort, const std::function<uint64_t(size_t thread)>& bite);

 private:
  std::unique_ptr<Ranks> ranks_;
  std::vector<size_t> first_;  // number of each rank's thread 0
  size_t size_ = 0;
};

// Memory that lies where the threads that touched it first run: a part each.
class Arena {
 public:
  // Reserves address space alone.
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

// Bytes per second that a team reads from memory, thread t going round and round its
// parts_of_thread[t] (none may be empty).
double BestStreamRate(Team& team, Effort effort, const Arena& arena,
                      const std::vector<std::vector<size_t>>& parts_of_thread,
                      void (*stream)(const std::byte* src, size_t bytes));

}  // namespace pinion::harness
