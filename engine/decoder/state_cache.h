#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/memory.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/spec.h"
#include "engine/weights/shard.h"

namespace pinion {

// The states of recurrent layers for one rank's heads: [place][recurrent layer][StateShape],
// float32. A sequence has a place (StepBatch::Slice) for as long as it runs; unlike keys and
// values, its state does not grow. Further places keep copies of states behind prefixes. Fresh
// memory reads as zero, and takes none until it is written.
class StateCache {
 public:
  static Result<StateCache> Allocate(const DecoderSpec& spec, const Shard& shard, size_t places,
                                     const MemoryPolicy& memory = {});
  // Of one sequence.
  static uint64_t BytesPerSequence(const DecoderSpec& spec, const Shard& shard);

  bool Holds(int32_t place) const { return place >= 0 && static_cast<size_t>(place) < places_; }
  // Of a model's recurrent layer: the convolution's last inputs, [conv_width - 1][channels], oldest
  // first; the state of a (value) head of the shard, [key_dim][value_dim] or, of Mamba-2,
  // [state_dim][head_dim].
  float* Tail(size_t layer, int32_t place) const;
  float* State(size_t layer, int32_t place, size_t value_head) const;

  // All of a sequence's, floats_per_place() of them.
  float* All(int32_t place) const;
  size_t floats_per_place() const { return layers_ * shape_.floats(); }

  size_t size_bytes() const { return storage_.size_bytes(); }

 private:
  Pages storage_;
  StateShape shape_;
  std::vector<size_t> order_;  // of each layer among the recurrent ones
  size_t layers_ = 0, places_ = 0;
};

}  // namespace pinion
