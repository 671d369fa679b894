#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/result.h"
#include "engine/exec/step.h"
#include "engine/host/memory.h"

namespace pinion {

// What the cache has to hold.
struct KvRoom {
  size_t blocks = 0;         // of keys and values, in every rank
  size_t max_model_len = 0;  // tokens of the longest sequence; some ropes depend on it
  size_t places = 0;         // of states, if layers are recurrent: of running sequences and copies
  // Sequences that may begin at once, for which memory is made ready ahead of its use; 0: it is
  // not.
  size_t burst = 0;
};

// Over all ranks of this process.
struct ExecutorMemory {
  uint64_t weight_bytes = 0, kv_bytes = 0, state_bytes = 0;
};

// What the steps so far had to read beyond what their shapes tell, over all ranks.
struct StepReads {
  // Of experts' weights: in each step and layer, every expert that some token chose counts once.
  uint64_t expert_bytes = 0;
  // Of keys and values of all layers that were not read, because sequences with the same blocks
  // read them together.
  uint64_t shared_kv_bytes = 0;
};

// What a step asks of its caller while it is computed: masks are made meanwhile, and rows are too
// large to be kept. Both may be called from within Executor::Execute alone.
class StepCaller {
 public:
  virtual ~StepCaller() = default;
  // The tokens that a constrained row may choose among, as Sampler::Sample takes them; nothing if
  // the grammar failed. Waits until they are known. By any thread, for several rows at a time.
  virtual std::span<const uint32_t> Mask(size_t wanted) = 0;
  // A wanted row itself, float32 [width], for the time of the call. In order of rows, from the
  // thread that called Execute.
  virtual void Take(size_t wanted, const float* row, size_t width) = 0;
};

// A loaded model, on whatever computes it: the teams of this process (cpu/), several processes
// (LeadExecutor), or a device with memory of its own. Weights, keys and values, states, logits and
// the choice of tokens are behind it; requests and their order, the numbers of blocks and grammars
// are before it.
// Thread rule: all calls from the thread that loaded the model.
class Executor {
 public:
  virtual ~Executor() = default;

  // Once, before the first step.
  virtual Status AllocateKv(const KvRoom& room) = 0;
  // One step: writes the keys and values of every row and does with the wanted rows what they are
  // wanted for.
  virtual StepOutput Execute(const StepInput& input, StepCaller& caller) = 0;

  virtual ExecutorMemory memory() const = 0;
  virtual StepReads reads() const = 0;
  // Seconds for which the threads of each rank of this process waited for each other and for other
  // ranks, the mean of a rank's threads; part of the steps' time.
  virtual std::vector<double> waited_s() const { return {}; }
  // Of each rank of this process, as far as it is the host's memory.
  virtual std::vector<RankPlacement> placements() const { return {}; }

  // Between steps: makes a piece of the cache's memory ready for each thread, behind the `reached`
  // blocks that were given out so far. Changes nothing else. half: while sequences wait, half of
  // what KvRoom::burst asks for is enough. AheadOfUse: whether there is such a piece.
  virtual bool AheadOfUse(size_t /*reached*/, bool /*half*/) const { return false; }
  virtual void PrepareKv(size_t /*reached*/, bool /*half*/) {}
};

// For steps from which nothing is wanted but tokens that no grammar constrains.
class NoCaller final : public StepCaller {
 public:
  std::span<const uint32_t> Mask(size_t) override { return {}; }
  void Take(size_t, const float*, size_t) override {}
};

}  // namespace pinion
