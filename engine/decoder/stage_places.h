#pragma once

#include <cstddef>
#include <vector>

#include "engine/base/result.h"
#include "engine/weights/stages.h"

namespace pinion {

// The processes that compute the stages of a pipeline. Process p of several has the ranks
// [p * n, (p + 1) * n) of Partition's numbering, n being as many as each process has: whole stages,
// or a part of one.
class StagePlaces {
 public:
  // kUsage unless the processes share the ranks so.
  static Result<StagePlaces> Of(const Partition& partition, size_t processes);

  size_t ranks() const { return ranks_; }          // of a process
  int tensor() const { return tensor_; }           // ranks of a stage in a process
  size_t per_stage() const { return per_stage_; }  // processes of a stage
  // The stages of a process, last to first, as their ranks are numbered.
  std::vector<int> StagesIn(size_t process) const;
  // Buffers of hidden states, each for the rows of a step: those that a stage has, the index-th of
  // StagesIn(process), for its input from another process and for its output. A stage in the same
  // process may be reading its input of any other step in flight.
  struct Buffers {
    size_t taken = 0, given = 0;
    size_t all() const { return taken + given; }
  };
  Buffers BuffersOf(size_t process, size_t index) const;
  // The process that hands hidden states to `process`, which has `stage`, or takes them from it:
  // the one that has stage `other`, and the same part of it.
  size_t ProcessOf(int other, size_t process) const;

 private:
  Partition partition_;
  size_t processes_ = 1, ranks_ = 1, per_stage_ = 1;
  int tensor_ = 1, stages_ = 1;  // of a process
};

}  // namespace pinion
