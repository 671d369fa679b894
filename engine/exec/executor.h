#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/result.h"
#include "engine/exec/step.h"
#include "engine/host/memory.h"

namespace pinion {

// Room that the cache must have. How many tokens a block has is decided when the model is loaded.
struct KvRoom {
  size_t blocks = 0;         // of keys and values, in every rank
  size_t max_model_len = 0;  // tokens of the longest sequence; some ropes depend on it
  size_t places = 0;         // of states, if layers are recurrent: of running sequences and copies
  // Sequences that may begin at once; memory for them is prepared ahead of its use. 0: none is.
  size_t burst = 0;
};

// Over all ranks of this process.
struct ExecutorMemory {
  uint64_t weight_bytes = 0, kv_bytes = 0, state_bytes = 0;
};

// Bytes of a block of each table, over all its ranks, and of a state, as one executor reads them
// and another writes them; no tables: it does neither. A model without recurrent layers has states
// of 0 bytes.
struct ImageBytes {
  std::vector<size_t> blocks = {};  // [tables]
  size_t state = 0;
};

// The bytes [first, first + bytes) of the images of blocks of a table.
struct ImagePart {
  size_t table = 0, first = 0, bytes = 0;
};

// Bytes that the steps so far read, as far as their shapes alone do not tell; over all ranks.
struct StepReads {
  // Of experts' weights: in each step and layer, every expert that some token chose counts once.
  uint64_t expert_bytes = 0;
  // Of keys and values of all layers that were not read, because sequences with the same blocks
  // read them together.
  uint64_t shared_kv_bytes = 0;
};

// Callbacks of a step, from within Executor::Finish alone: masks are still being made when a step
// starts, rows are too large to be stored, and blocks are wanted before the step ends.
class StepCaller {
 public:
  virtual ~StepCaller() = default;
  // The tokens that a constrained row may choose among, as Sampler::Sample takes them; empty if the
  // grammar failed. Blocks until they are known; valid until Finish returns. Several threads may
  // ask at once.
  virtual std::span<const uint32_t> Mask(size_t wanted) = 0;
  // A wanted row itself, float32 [width], valid during the call; width is the spec's
  // output_width(). In order of rows, from one thread at a time.
  virtual void Take(size_t wanted, const float* row, size_t width) = 0;
  // Of a step that hands over: how far its blocks are. Of each table's, so many first bytes of
  // their images are as the step leaves them, and ReadBlocks may have them at once. On the thread
  // that called Finish, with more each time, or never, if the executor cannot tell; all bytes are
  // there when Finish returns.
  virtual void Written(std::span<const size_t> /*image_bytes*/) {}
};

// A loaded model, on whatever computes it: the teams of this process (cpu/), several processes
// (LeadExecutor), or a device with memory of its own. It owns weights, keys and values, states,
// logits and samplers; its caller owns requests, their order, the numbers of blocks, and grammars.
// A step returns no error: allocation and loading can fail, and both come before the first one. An
// executor that cannot go on ends the process with a message.
// Thread rule: all calls from the thread that loaded the model.
class Executor {
 public:
  virtual ~Executor() = default;

  // Once, before the first step.
  virtual Status AllocateKv(const KvRoom& room) = 0;
  // A step in two calls. Begin takes it over, and `input` stays as it is until Finish. Finish is
  // for the oldest step in flight: it returns when the keys and values of every row are written and
  // each wanted row is processed according to its use. Up to steps_in_flight() steps may have begun
  // and not be finished; a step finds everything as the one before it leaves it. All are finished
  // before the executor ends. In processes that follow (FollowExecutor) no sequence begins, every
  // use is kItself, and nobody reads what they hand on: a share of the rows' logits may be all that
  // they compute.
  virtual void Begin(const StepInput& input) = 0;
  virtual StepOutput Finish(StepCaller& caller) = 0;
  virtual size_t steps_in_flight() const { return 1; }

  virtual ExecutorMemory memory() const = 0;
  // As of the last step that is finished, and so is the next.
  virtual StepReads reads() const = 0;
  // Seconds for which the threads of each rank of this process waited for each other and for other
  // ranks, the mean of a rank's threads; part of the steps' time.
  virtual std::vector<double> waited_s() const { return {}; }
  // Of each rank of this process, as far as it is the host's memory.
  virtual std::vector<RankPlacement> placements() const { return {}; }

  // While no step is in flight: PrepareKv touches one piece of the cache for each thread, beyond
  // the first `reached` blocks, which are in use. AheadOfUse: whether any is left. half: half of
  // what KvRoom::burst asks for is enough, as while sequences wait.
  virtual bool AheadOfUse(size_t /*reached*/, bool /*half*/) const { return false; }
  virtual void PrepareKv(size_t /*reached*/, bool /*half*/) {}

  // Blocks and states that another executor of the same model, types, block size and partition has
  // computed, on any ISA path, as bytes that mean the same to both. Not called if image_bytes() has
  // no tables. Both write while no step is in flight; what no step in flight writes is also read
  // within StepCaller::Written. images: [blocks][ImagePart::bytes], of distinct blocks of the
  // part's table; image: [ImageBytes::state].
  virtual ImageBytes image_bytes() const { return {}; }
  virtual void ReadBlocks(std::span<const int32_t> /*blocks*/, const ImagePart& /*part*/,
                          std::byte* /*images*/) {}
  virtual void WriteBlocks(std::span<const int32_t> /*blocks*/, const ImagePart& /*part*/,
                           const std::byte* /*images*/) {}
  virtual void ReadState(int32_t /*place*/, std::byte* /*image*/) {}
  virtual void WriteState(int32_t /*place*/, const std::byte* /*image*/) {}
};

// Ignores rows and has no masks: for first steps, and for processes that follow.
class NoCaller final : public StepCaller {
 public:
  std::span<const uint32_t> Mask(size_t) override { return {}; }
  void Take(size_t, const float*, size_t) override {}
};

}  // namespace pinion
