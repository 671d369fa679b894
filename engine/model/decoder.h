#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/team.h"
#include "engine/model/spec.h"
#include "engine/model/step.h"
#include "engine/model/tensors.h"
#include "kernels/integer_prefetch.h"
#include "kernels/kernels.h"

namespace pinion {

class ActivationObserver;

struct DecoderOptions {
  kernels::Isa isa = kernels::Isa::kScalar;
  kernels::Dtype dtype = kernels::Dtype::kBf16;  // of weights and activations
  kernels::IntPrefetch int_prefetch;             // of products with integer weights
  std::optional<kernels::KvDtype> kv_dtype;      // unset: as weights and activations
  bool moe_prepack = true;                       // pack experts at loading, not at every step
  size_t max_rows = 2048;                        // tokens of the largest step
  size_t block_tokens = 32;
  const kernels::Table* table = nullptr;  // unset: that of isa; tests watch or replace functions

  kernels::KvDtype cached() const { return kv_dtype.value_or(kernels::KvDtypeOf(dtype)); }
};

// Receives logits, called by every thread of rank 0 at once: logits [count][vocabulary], row stride
// `stride` floats, of batch.logit_rows[first .. first + count). May overwrite them. Each thread
// takes its own share of the rows; the buffer is reused after all have returned.
using LogitsSink = std::function<void(const Worker& worker, size_t first, size_t count,
                                      float* logits, size_t stride)>;

// A decoder-only transformer, sharded over the teams of `ranks`: packed weights, KV cache and the
// forward pass. Knows no architecture by name: everything comes from the spec.
// Thread rule: all calls from the thread that started `ranks`.
class Decoder {
 public:
  // Packs the weights; `source` stays in use for embedding rows, which are read where they lie.
  static Result<std::unique_ptr<Decoder>> Load(const DecoderSpec& spec,
                                               std::shared_ptr<const TensorSource> source,
                                               Ranks& ranks, const DecoderOptions& options);
  virtual ~Decoder() = default;

  // max_model_len: tokens of the longest sequence that will be served; some ropes depend on it.
  virtual Status AllocateKv(size_t blocks, size_t max_model_len) = 0;
  virtual uint64_t weight_bytes() const = 0;  // packed, over all ranks
  virtual uint64_t kv_bytes() const = 0;      // over all ranks
  // Bytes of experts' weights that the steps so far had to read, over all ranks: each expert that a
  // step's tokens chose once per layer.
  virtual uint64_t expert_bytes_read() const = 0;
  // Bytes of keys and values, over all ranks and layers, that sequences did not read in the steps
  // so far because they read them together with another that has the same blocks.
  virtual uint64_t shared_kv_bytes() const = 0;

  // Where one rank's memory really lies: {node, bytes} as NodesOf. KV that nothing has been written
  // to lies nowhere.
  struct Placement {
    std::vector<std::pair<int, uint64_t>> weights, kv;
  };
  virtual std::vector<Placement> placements() const = 0;  // by rank

  // One step: writes the KV of every row, computes the logits that are wanted and hands them to
  // `sink` in chunks. Token ids must lie in the vocabulary.
  virtual void Forward(const StepBatch& batch, const LogitsSink& sink) = 0;

  // From now on `observer` sees what the layers' matrices multiply; null: nobody does. It outlives
  // its last step.
  virtual void Observe(ActivationObserver* observer) = 0;
};

// Bytes of activations and scratch that a rank needs beside weights and KV.
uint64_t WorkspaceBytes(const DecoderSpec& spec, const DecoderOptions& options, int ranks,
                        int rank);

// Rows of logits computed at once: bounds the logits buffer (128 x 152k x 4 bytes = 78 MB).
inline constexpr size_t kLogitChunk = 128;

}  // namespace pinion
