#include "engine/decoder/attend.h"

#include <vector>

namespace pinion {
namespace {

using kernels::AttentionPart;
using kernels::kAttentionRows;

struct MutablePart {
  float *out, *max, *sum;
};

MutablePart PartAt(const Attention& attention, float* storage) {
  float* max = storage + kAttentionRows * attention.cache.shape(attention.place.layer).value_dim;
  return {storage, max, max + kAttentionRows};
}

void Merge(const Attention& attention, const AttentionPart* parts, size_t count, size_t group_index,
           size_t row, size_t rows) {
  const HeadGroup& group = attention.heads.groups[group_index];
  const size_t value_dim = attention.cache.shape(attention.place.layer).value_dim;
  const size_t column = group.first_q_head * value_dim;
  std::byte* dst =
      attention.dst + (row * attention.dst_stride + column) * kernels::SizeOf(attention.dst_type);
  const float* sinks = attention.sinks ? attention.sinks + group.first_q_head : nullptr;
  attention.table.attention_merge({.parts = parts,
                                   .parts_count = count,
                                   .tokens = rows,
                                   .group = group.q_heads,
                                   .value_dim = value_dim,
                                   .sinks = sinks,
                                   .dst = dst,
                                   .dst_stride = attention.dst_stride,
                                   .dst_type = attention.dst_type});
}

void RunItem(const Attention& attention, const AttentionItem& item, const MutablePart& part) {
  const HeadGroup& group = attention.heads.groups[item.group];
  const KvCache& cache = attention.cache;
  const KvShape& shape = cache.shape(attention.place.layer);
  const float* q[kAttentionRows];
  int64_t positions[kAttentionRows];
  for (size_t i = 0; i < item.queries; ++i) {
    const QueryToken& query = attention.plan.queries[item.first_query + i];
    q[i] = attention.q + query.row * attention.q_stride + group.first_q_head * shape.key_dim;
    positions[i] = query.position;
  }
  const Reach& reach = attention.spec.reach;
  const int64_t chunk = reach.chunk > 0 ? positions[0] / reach.chunk * reach.chunk : 0;
  attention.table.attention(
      {.q = q,
       .positions = positions,
       .tokens = item.queries,
       .group = group.q_heads,
       .key_dim = shape.key_dim,
       .value_dim = shape.value_dim,
       .step_tokens = item.step_queries,
       .window = reach.window > 0 ? reach.window : kernels::kNoWindow,
       .first_seen = chunk,
       .context_begin = item.context_begin,
       .context_end = item.context_end,
       .keys = cache.keys(attention.place.layer, group.kv_head),
       .values = cache.values(attention.place.layer, group.kv_head),
       .key_strides = cache.key_strides(attention.place.layer),
       .value_strides = cache.value_strides(attention.place.layer),
       .block_table = attention.batch.slices[item.slice].block_tables[attention.place.table],
       .block_tokens = cache.block_tokens(),
       .dtype = cache.dtype(),
       .scale = attention.spec.scale,
       .soft_cap = attention.spec.soft_cap,
       .out = part.out,
       .max = part.max,
       .sum = part.sum});
}

void Finish(const Attention& attention, const AttentionJoin& join,
            std::vector<AttentionPart>& parts) {
  const KvShape& shape = attention.cache.shape(attention.place.layer);
  const size_t q_heads = attention.heads.groups[join.group].q_heads;
  parts.clear();
  for (size_t i = 0; i < join.sources; ++i) {
    const SlotToken& source = attention.plan.sources[join.first_source + i];
    const MutablePart part = PartAt(attention, attention.parts + source.slot * PartFloats(shape));
    const size_t row = source.token * q_heads;
    parts.push_back({part.out + row * shape.value_dim, part.max + row, part.sum + row});
  }
  Merge(attention, parts.data(), parts.size(), join.group, join.row, join.rows);
}

}  // namespace

void Attend(const Attention& attention, const Worker& worker, float* own_part) {
  const AttentionPlan& plan = attention.plan;
  const size_t stride = PartFloats(attention.cache.shape(attention.place.layer));
  worker.ShareOneByOne(plan.items.size(), [&](size_t i) {
    const AttentionItem& item = plan.items[i];
    const bool whole = item.slot < 0;
    const MutablePart part = PartAt(
        attention, whole ? own_part : attention.parts + static_cast<size_t>(item.slot) * stride);
    RunItem(attention, item, part);
    // The only part of its rows is finished at once, in cache; other parts are joined in another
    // phase.
    if (!whole) return;
    const AttentionPart only = {part.out, part.max, part.sum};
    Merge(attention, &only, 1, item.group, plan.queries[item.first_query].row, item.queries);
  });
  if (plan.joins.empty()) return;
  worker.Share(plan.joins.size(), [&](size_t begin, size_t end) {
    std::vector<AttentionPart> parts;
    for (size_t i = begin; i < end; ++i) Finish(attention, plan.joins[i], parts);
  });
}

}  // namespace pinion
