#pragma once

#include <cstddef>

#include "engine/decoder/attention_plan.h"
#include "engine/decoder/kv_cache.h"
#include "engine/decoder/step.h"
#include "engine/host/team.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/kv_tables.h"
#include "engine/weights/shard.h"
#include "kernels/kernels.h"

namespace pinion {

// One rank's attention in one layer: the memory that its threads read and write.
struct Attention {
  const kernels::Table& table;
  const StepBatch& batch;
  const HeadShare& heads;
  const KvCache& cache;  // holds the keys and values of the batch's tokens too
  KvPlace place;         // of the layer in it
  AttentionSpec spec;
  const AttentionPlan& plan;  // of the batch, for spec.reach
  const float* q;             // [rows][q_stride]: head h at h * key_dim, rotary applied
  size_t q_stride;
  const float* sinks;  // [q heads]: attention sinks; null: none
  std::byte* dst;      // [rows][dst_stride] of dst_type: head h at h * value_dim
  size_t dst_stride;
  kernels::Dtype dst_type;
  float* parts;  // [plan.slots][PartFloats]
};

// Floats of one partial result: out [kAttentionRows][value_dim], max and sum [kAttentionRows].
constexpr size_t PartFloats(const KvShape& shape) {
  return kernels::kAttentionRows * (shape.value_dim + 2);
}

// Computes it; called by every thread of the rank at once. own_part: scratch of PartFloats, the
// thread's own. One phase or two.
void Attend(const Attention& attention, const Worker& worker, float* own_part);

}  // namespace pinion
