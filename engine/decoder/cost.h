#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "engine/spec/attention_spec.h"
#include "engine/spec/spec.h"
#include "engine/weights/format_plan.h"
#include "engine/weights/shard.h"
#include "kernels/types.h"

namespace pinion {

// The least that a step costs: bytes that must come from memory once, and arithmetic operations.
// The one that takes longer bounds the step (its roof). Sums of steps bound sums of times.
struct StepCost {
  uint64_t weight_bytes = 0;  // as packed, padding and norms included
  uint64_t kv_bytes = 0;      // keys and values of every token that is seen, over all layers;
                              // EngineStats subtracts the tokens that sequences share. And the
                              // states that recurrent layers read
  uint64_t flops = 0;         // of projections and attention; a multiply-add counts as two
  uint64_t int8_ops = 0;      // the same of products with weights that stay in integers

  uint64_t bytes() const { return weight_bytes + kv_bytes; }
  uint64_t operations() const { return flops + int8_ops; }
  StepCost& operator+=(const StepCost& other);
};

// Counts from shapes alone, exactly. The exception is experts' weights, of which a step reads those
// that its tokens choose: they are counted while it runs (Decoder::expert_bytes_read) and estimated
// before. Left out, each far below a thousandth: embedding rows (one per token), activations,
// norms, rotary embedding and softmax.
class CostModel {
 public:
  // kv_dtype: of the cache. Sums over all ranks, some of which may hold the same KV.
  CostModel(const DecoderSpec& spec, const FormatPlan& formats, kernels::KvDtype kv_dtype,
            const RankShares& shares);
  CostModel(const DecoderSpec& spec, const FormatPlan& formats, const RankShares& shares)
      : CostModel(spec, formats, kernels::KvDtypeOf(formats.dtype), shares) {}

  // All weights except experts, which a step reads once however many rows it has; the head only if
  // logits are wanted.
  StepCost Weights(bool with_head) const;

  // The experts' weights that a step of `rows` rows reads. Expected: each token chooses any top_k
  // of E experts with equal probability (none chooses a given one with (1 - top_k / E)^rows).
  // Least: all tokens choose the same. Nothing for models without experts.
  StepCost ExpectedExperts(size_t rows) const;
  StepCost LeastExperts() const;

  // The other costs of `rows` consecutive tokens of one sequence from `first_position` on. Each
  // sees everything before it, or as much as its layer lets it (of a bidirectional model, which
  // takes whole sequences, in both directions); for `logit_rows` of them
  // logits are computed.
  StepCost Rows(size_t first_position, size_t rows, size_t logit_rows) const;

 private:
  uint64_t layer_weight_bytes_ = 0, head_bytes_ = 0;  // of all layers; of the head
  uint64_t expert_bytes_ = 0;                         // of all experts of all layers
  double touched_by_a_token_ = 0;                     // the fraction of them
  // Of a cached token read, and one seen by one row, over the layers of one reach; of an indexer,
  // over all ranks, since each of them compares: of a token's key read, and one compared with.
  struct TokenCost {
    uint64_t kv_bytes = 0, flops = 0, index_bytes = 0, compare_flops = 0;
  };
  std::map<Reach, TokenCost> of_reach_;
  bool bidirectional_ = false;  // they reach in both directions
  uint64_t state_bytes_ = 0;    // of a sequence, over all recurrent layers
  // Of a row's products with weights, and with the head: floating-point and int8 ones.
  struct Products {
    uint64_t flops = 0, int8_ops = 0;
  };
  void AddAttention(const DecoderSpec& spec, const Shard& shard, kernels::Dtype dtype,
                    kernels::KvDtype kv_dtype);
  static Products LayerProducts(const DecoderSpec& spec, const FormatPlan& formats, int layer);
  Products per_row_, per_logit_row_;
};

}  // namespace pinion
