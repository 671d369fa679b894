#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/exec/step.h"
#include "engine/run/pooler.h"
#include "engine/run/step_cut.h"
#include "engine/sched/scheduler.h"
#include "engine/spec/spec.h"

namespace pinion {

// Lays the slices of a step out as an executor's input, and remembers whose rows are wanted.
class StepLayout {
 public:
  // pooler: null if the model generates. cut: of the model's stages. seed: of requests that name
  // none.
  StepLayout(const DecoderSpec& spec, const Pooler* pooler, const StepCut& cut, uint64_t seed)
      : spec_(spec), pooler_(pooler), cut_(cut), seed_(seed) {}

  // Not for an empty step, which no executor would see. takes_scores: whether the rows of sequences
  // that score go to a sink. The result is valid until the next call.
  const StepInput& Lay(const std::vector<Slice>& slices, bool takes_scores);
  // Call it when a sequence has ended: no later step may hold it.
  void End(const Sequence& sequence);

  // Of the last input's wanted rows.
  const std::vector<WantedRow>& wanted() const { return input_.wanted; }
  Sequence& sequence(size_t wanted) const { return *owners_[wanted].sequence; }
  size_t position(size_t wanted) const { return owners_[wanted].position; }

 private:
  struct Owner {
    Sequence* sequence;
    size_t position;
  };

  void LaySlice(const Slice& slice, StepInput::Slice& to);
  void AddTypes(const Slice& slice);
  void Want(const Slice& slice, size_t first_row, bool takes_scores);
  Pooler::Rows RowsOf(const Slice& slice, bool takes_scores) const;
  void Begin(Sequence& sequence);

  const DecoderSpec& spec_;
  const Pooler* pooler_;
  const StepCut& cut_;
  const uint64_t seed_;
  StepInput input_;
  std::vector<Owner> owners_;  // [wanted]
  std::vector<uint64_t> ended_;
};

}  // namespace pinion
