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

// The slices of a step as an executor's input, and whose rows are wanted.
struct LaidStep {
  struct Owner {
    Sequence* sequence;
    size_t position;
  };
  StepInput input;
  std::vector<Owner> owners;  // [input.wanted]

  const std::vector<WantedRow>& wanted() const { return input.wanted; }
  Sequence& sequence(size_t wanted) const { return *owners[wanted].sequence; }
  size_t position(size_t wanted) const { return owners[wanted].position; }
};

// Lays steps out, and knows which sequences have samplers.
class StepLayout {
 public:
  // pooler: null if the model generates. cut: of the model's stages. seed: of requests that name
  // none.
  StepLayout(const DecoderSpec& spec, const Pooler* pooler, const StepCut& cut,
             size_t steps_in_flight, uint64_t seed)
      : spec_(spec), pooler_(pooler), cut_(cut), steps_in_flight_(steps_in_flight), seed_(seed) {}

  // Writes `step`, using its memory. Not for an empty step, which no executor would see.
  // takes_scores: whether the rows of sequences that score go to a sink.
  void Lay(const std::vector<Slice>& slices, bool takes_scores, LaidStep& step);
  // Call it when a sequence has ended: no later step may hold it.
  void End(const Sequence& sequence);

 private:
  void AddTypes(const Slice& slice, StepInput& input) const;
  void Want(const Slice& slice, size_t first_row, bool takes_scores, LaidStep& step) const;
  Pooler::Rows RowsOf(const Slice& slice, bool takes_scores) const;
  void Begin(Sequence& sequence, StepInput& input) const;

  const DecoderSpec& spec_;
  const Pooler* pooler_;
  const StepCut& cut_;
  const size_t steps_in_flight_;
  const uint64_t seed_;
  std::vector<uint64_t> ended_;
};

}  // namespace pinion
