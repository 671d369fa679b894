#include "engine/weights/delta_packer.h"

#include <string>
#include <vector>

#include "engine/spec/tensor_list.h"
#include "engine/weights/conv_packer.h"
#include "engine/weights/weight_packer.h"

namespace pinion {
namespace {

size_t SizeT(int n) { return static_cast<size_t>(n); }

// A share of key heads, and the rows of the checkpoint's tensors that belong to it.
struct Heads {
  Heads(const DeltaSpec& delta, Range keys)
      : keys(keys),
        per_key(SizeT(delta.heads_per_key())),
        values{keys.begin * per_key, keys.end * per_key},
        all_keys(SizeT(delta.key_heads)),
        key_dim(SizeT(delta.key_dim)),
        value_dim(SizeT(delta.value_dim)) {}

  Range keys;
  size_t per_key;
  Range values;
  size_t all_keys, key_dim, value_dim;

  // Rows of queries (first 0), keys and values in a tensor that holds them of all heads.
  Range KeyRows(size_t first) const {
    return {first + keys.begin * key_dim, first + keys.end * key_dim};
  }
  Range ValueRows(size_t first) const {
    return {first + values.begin * value_dim, first + values.end * value_dim};
  }
  // Of a: one of each value head, or of each key's channel.
  Range ARows(const DeltaSpec& delta) const {
    return delta.decay_per_channel ? KeyRows(0) : values;
  }
  // q, k and v rows, in the order of DeltaColumns.
  std::vector<Range> ChannelRows() const {
    const size_t all = all_keys * key_dim;
    return {KeyRows(0), KeyRows(all), ValueRows(2 * all)};
  }
};

Segment SegmentOf(const TensorInfo& tensor, Range rows) {
  return {&tensor, rows.begin, rows.size()};
}

// Tensors of all queries, keys and values; of z; b; a.
void PackSeparate(const Heads& heads, const std::vector<std::string>& modules, WeightPacker& packer,
                  const PackedMatrix& matrix) {
  std::vector<TensorInfo> tensors;
  for (const std::string& module : modules) tensors.push_back(packer.Find(module + ".weight"));
  std::vector<Segment> segments;
  for (const Range& rows : heads.ChannelRows()) segments.push_back(SegmentOf(tensors[0], rows));
  segments.push_back(SegmentOf(tensors[1], heads.ValueRows(0)));
  segments.push_back(SegmentOf(tensors[2], heads.values));
  segments.push_back(SegmentOf(tensors[3], heads.values));
  packer.PackMatrix(matrix, segments, 0);
}

// Two tensors by key head: its query, key, values, z; its b, a.
void PackByKeyHead(const Heads& heads, const std::vector<std::string>& modules,
                   WeightPacker& packer, const PackedMatrix& matrix) {
  const TensorInfo qkvz = packer.Find(modules[0] + ".weight");
  const TensorInfo ba = packer.Find(modules[1] + ".weight");
  const size_t values = heads.per_key * heads.value_dim;
  const size_t head_rows = 2 * heads.key_dim + 2 * values;
  std::vector<Segment> segments;
  const auto add = [&](const TensorInfo& tensor, size_t stride, size_t first, size_t count) {
    for (size_t head = heads.keys.begin; head < heads.keys.end; ++head)
      segments.push_back({&tensor, head * stride + first, count});
  };
  add(qkvz, head_rows, 0, heads.key_dim);
  add(qkvz, head_rows, heads.key_dim, heads.key_dim);
  add(qkvz, head_rows, 2 * heads.key_dim, values);
  add(qkvz, head_rows, 2 * heads.key_dim + values, values);
  add(ba, 2 * heads.per_key, 0, heads.per_key);
  add(ba, 2 * heads.per_key, heads.per_key, heads.per_key);
  packer.PackMatrix(matrix, segments, 0);
}

// Tensors of queries, keys and values; of b; of the bottlenecks of z and a, which every rank
// computes whole.
void PackWithBottlenecks(const DeltaSpec& delta, const Heads& heads,
                         const std::vector<std::string>& modules, WeightPacker& packer,
                         const PackedMatrix& matrix) {
  std::vector<TensorInfo> tensors;
  for (const std::string& module : modules) tensors.push_back(packer.Find(module + ".weight"));
  packer.PackMatrix(matrix,
                    {SegmentOf(tensors[0], heads.KeyRows(0)),
                     SegmentOf(tensors[1], heads.KeyRows(0)),
                     SegmentOf(tensors[2], heads.ValueRows(0)),
                     SegmentOf(tensors[3], heads.values),
                     {&tensors[4], 0, SizeT(delta.z_rank)},
                     {&tensors[5], 0, SizeT(delta.a_rank)}},
                    0);
}

// The channels of q, k and v, in one convolution's tensor or in three.
std::vector<ConvRows> ConvParts(const TensorNames& names, int index, const Heads& heads,
                                const WeightPacker& packer) {
  const auto find = [&](const std::string& pattern) {
    return packer.Find(LayerTensor(pattern, index) + ".weight");
  };
  if (names.delta_conv.empty())
    return {{find(names.delta_conv_q), heads.KeyRows(0)},
            {find(names.delta_conv_k), heads.KeyRows(0)},
            {find(names.delta_conv_v), heads.ValueRows(0)}};
  std::vector<ConvRows> parts;
  for (const Range& rows : heads.ChannelRows()) parts.push_back({find(names.delta_conv), rows});
  return parts;
}

}  // namespace

void LoadDeltaNet(const DecoderSpec& spec, int index, const TensorSource& source,
                  const Worker& worker, const Shard& shard, LayerWeights& layer) {
  if (shard.delta_heads.size() == 0) return;
  const TensorNames& names = spec.names;
  const Heads heads(spec.delta, shard.delta_heads);
  const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, index); };
  WeightPacker packer(source, worker);
  if (spec.delta.z_rank > 0) {
    PackWithBottlenecks(spec.delta, heads,
                        {at(names.delta_q), at(names.delta_k), at(names.delta_v), at(names.delta_b),
                         at(names.delta_z_down), at(names.delta_a_down)},
                        packer, layer.qkv);
    const TensorInfo z = packer.Find(at(names.delta_z_up) + ".weight");
    const TensorInfo a = packer.Find(at(names.delta_a_up) + ".weight");
    packer.PackMatrix(layer.delta.z_up, {SegmentOf(z, heads.ValueRows(0))}, 0);
    packer.PackMatrix(layer.delta.a_up, {SegmentOf(a, heads.ARows(spec.delta))}, 0);
  } else if (names.delta_qkvz.empty()) {
    PackSeparate(heads,
                 {at(names.delta_qkv), at(names.delta_z), at(names.delta_b), at(names.delta_a)},
                 packer, layer.qkv);
  } else {
    PackByKeyHead(heads, {at(names.delta_qkvz), at(names.delta_ba)}, packer, layer.qkv);
  }
  packer.FillVector(layer.delta.log_a, at(names.delta_decay), heads.values);
  packer.FillVector(layer.delta.dt_bias, at(names.delta_dt_bias), heads.ARows(spec.delta));
  packer.FillVector(layer.delta.norm, at(names.delta_norm) + ".weight", {0, heads.value_dim});
  if (worker.thread == 0)
    FillConv(ConvParts(names, index, heads, packer), source, layer.delta.conv);
}

}  // namespace pinion
