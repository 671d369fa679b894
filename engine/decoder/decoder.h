#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/tensors.h"
#include "engine/comm/communicator.h"
#include "engine/decoder/step.h"
#include "engine/host/memory.h"
#include "engine/host/team.h"
#include "engine/spec/spec.h"
#include "engine/weights/format_plan.h"
#include "engine/weights/shard.h"
#include "engine/weights/shared_weights.h"
#include "kernels/e4m3.h"
#include "kernels/integer_prefetch.h"
#include "kernels/kernels.h"

namespace pinion {

class ActivationObserver;

struct DecoderOptions {
  kernels::Isa isa = kernels::Isa::kScalar;
  FormatPlan formats;                        // of weights and activations
  kernels::IntPrefetch int_prefetch;         // of products with integer weights
  std::optional<kernels::KvDtype> kv_dtype;  // unset: as weights and activations
  bool moe_prepack = true;                   // pack experts at loading, not at every step
  size_t max_rows = 2048;                    // tokens of the largest step
  size_t block_tokens = 32;
  const kernels::Table* table = nullptr;  // unset: that of isa; tests watch or replace functions
  // Of the memory of each of this process's ranks; empty: all are local.
  std::vector<MemoryPolicy> memory = {};
  // The processes that compute the model, each with as many ranks as this one; null: this one
  // alone.
  Communicator* communicator = nullptr;
  // Of the ranks of all these processes; unset: all have as much.
  std::optional<RankShares> shares = {};
  SharedShards shared = {};  // where the packed weights lie, if several engines share them
  kernels::Dtype wire = kernels::Dtype::kF32;  // of ranks' terms between processes; or kBf16

  MemoryPolicy memory_of(size_t rank) const {
    return rank < memory.size() ? memory[rank] : MemoryPolicy{};
  }
  RankShares SharesOf(int ranks) const { return shares.value_or(ranks); }
  kernels::KvDtype cached() const { return kv_dtype.value_or(kernels::KvDtypeOf(formats.dtype)); }
};

// Receives logits; called by every thread of rank 0 (which is in process 0) at once: logits
// [count][vocabulary], row stride `stride` floats, of batch.logit_rows[first .. first + count), or
// last hidden states, [count][hidden], behind the last norm, if the model has no head. May
// overwrite them. Each thread takes its own share of the rows; the buffer is reused after all have
// returned.
using LogitsSink = std::function<void(const Worker& worker, size_t first, size_t count,
                                      float* logits, size_t stride)>;

// The bytes [first, first + bytes) of the images of some blocks of a table; those of block i lie
// i * stride bytes behind those of the first. Blocks are distinct.
struct BlockImages {
  size_t table = 0;
  std::span<const int32_t> blocks;
  size_t first = 0, bytes = 0, stride = 0;
};

// Residual streams that a stage of a pipeline takes from the one before and gives to the next,
// float32 [rows of the step][HandoverFloats]. Null: it has the embeddings; it has the head.
struct Handover {
  const float* taken = nullptr;
  float* given = nullptr;
};

// A transformer (a decoder, or an encoder if the spec says bidirectional), sharded over the teams
// of `ranks`, and over those of other processes if there is a communicator: packed weights, KV
// cache and the forward pass. Every process then makes the same calls in the same order, and
// figures are those of its own ranks. Knows no architecture by name: everything comes from the
// spec. Thread rule: all calls from the thread that started `ranks`.
class Decoder {
 public:
  // Packs the weights; `source` stays in use, since embedding rows are read from it at every step.
  static Result<std::unique_ptr<Decoder>> Load(const DecoderSpec& spec,
                                               std::shared_ptr<const TensorSource> source,
                                               Ranks& ranks, const DecoderOptions& options);
  virtual ~Decoder() = default;

  // max_model_len: tokens of the longest sequence that will be served; some ropes depend on it.
  // places: of states, if layers are recurrent: of the sequences that run at once, and of copies.
  virtual Status AllocateKv(size_t blocks, size_t max_model_len, size_t places) = 0;
  virtual uint64_t weight_bytes() const = 0;  // packed, over all ranks
  virtual uint64_t kv_bytes() const = 0;      // over all ranks
  virtual uint64_t state_bytes() const = 0;   // of all places' states, over all ranks
  // Bytes of experts' weights that the steps so far had to read, over all ranks: in each step and
  // layer, every expert that some token chose counts once.
  virtual uint64_t expert_bytes_read() const = 0;
  // Bytes of keys and values, over all ranks and layers, that the steps so far did not read because
  // sequences with the same blocks read them together.
  virtual uint64_t shared_kv_bytes() const = 0;

  // The cache's memory in pieces, in the order in which a pool gives out the blocks: piece p is
  // that of span p / parts in part p % parts (KvCache::parts). A span is the blocks that lie
  // together (on the rank with the longest spans).
  struct KvPieces {
    size_t span_blocks = 1, parts = 1, count = 0;
  };
  virtual KvPieces kv_pieces() const = 0;
  // Makes pieces [first, last) resident, by the threads of the ranks that own them; changes
  // nothing.
  virtual void TouchKv(size_t first, size_t last) = 0;

  virtual std::vector<RankPlacement> placements() const = 0;  // by rank

  // Blocks and states of all ranks of this process as bytes, read by the caller, also during a step
  // that does not write them (any more), and written by the threads that own them. An image's bytes
  // mean the same to every decoder of this model, partition and types. Of a block's (KvImages):
  // those of the model's first `layers` layers, if the block is of this table.
  virtual size_t block_image_bytes(size_t table, size_t layers) const = 0;
  virtual size_t state_image_bytes() const = 0;
  virtual void ReadBlocks(const BlockImages& of, std::byte* images) const = 0;
  virtual void WriteBlocks(const BlockImages& of, const std::byte* images) = 0;
  virtual void ReadState(int32_t place, std::byte* image) const = 0;
  virtual void WriteState(int32_t place, const std::byte* image) = 0;

  // One step: writes the KV of every row, computes the wanted logits and hands them to `sink` in
  // chunks. Token ids must be within the vocabulary.
  virtual void Forward(const StepBatch& batch, const LogitsSink& sink) = 0;
  // The same of a stage: PlanStage once for a step, then ForwardStage for each of its parts
  // (CutStep, or the step alone), in order. Without the head the sink is not called.
  virtual void PlanStage(const StepBatch& step, std::span<const StepBatch> parts) = 0;
  virtual void ForwardStage(const StepBatch& part, const Handover& handover,
                            const LogitsSink& sink) = 0;

  // From now on `observer` sees the inputs of the layers' matrices (null: none does). It must
  // outlive the last step that it sees.
  virtual void Observe(ActivationObserver* observer) = 0;
};

// Bytes of activations and scratch that a rank needs beside weights and KV.
uint64_t WorkspaceBytes(const DecoderSpec& spec, const DecoderOptions& options, int ranks,
                        int rank);

// Rows of logits computed at once: bounds the logits buffer (128 x 152k x 4 bytes = 78 MB).
inline constexpr size_t kLogitChunk = 128;

}  // namespace pinion
