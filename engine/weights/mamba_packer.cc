#include "engine/weights/mamba_packer.h"

#include <string>
#include <vector>

#include "engine/spec/tensor_list.h"
#include "engine/weights/conv_packer.h"
#include "engine/weights/weight_packer.h"

namespace pinion {
namespace {

// A rank's rows of the checkpoint's tensors, which hold all heads and groups.
struct Rows {
  Rows(const MambaSpec& mamba, const Shard& shard)
      : all(mamba, static_cast<size_t>(mamba.heads), static_cast<size_t>(mamba.groups)),
        heads(shard.mamba_heads),
        head_dim(static_cast<size_t>(mamba.head_dim)) {
    const auto state_dim = static_cast<size_t>(mamba.state_dim);
    inner = {heads.begin * head_dim, heads.end * head_dim};
    group = {shard.mamba_groups.begin * state_dim, shard.mamba_groups.end * state_dim};
  }

  const MambaColumns all;
  const Range heads;
  const size_t head_dim;
  Range inner, group;  // of x and of z; of B and of C

  static Range From(size_t first, Range rows) { return {first + rows.begin, first + rows.end}; }
  // Of the convolution's tensor: x, B and C.
  std::vector<Range> Channels() const { return {inner, From(all.b, group), From(all.c, group)}; }
  // Of the projection's tensor, [z, x, B, C, dt], in the order of MambaColumns.
  std::vector<Range> Projection() const {
    const size_t z = all.b;
    std::vector<Range> rows;
    for (const Range& channels : Channels()) rows.push_back(From(z, channels));
    rows.push_back(inner);
    rows.push_back(From(z + all.channels(), heads));
    return rows;
  }
};

void FillScaledConv(const MambaSpec& spec, const std::vector<Range>& channels,
                    const TensorSource& source, const TensorInfo& tensor, float* dst) {
  std::vector<ConvRows> parts;
  for (const Range& rows : channels) parts.push_back({tensor, rows});
  FillConv(parts, source, dst);
  const float factors[] = {spec.multipliers.x, spec.multipliers.b, spec.multipliers.c};
  for (int tap = 0; tap < spec.conv_width; ++tap)
    for (size_t part = 0; part < channels.size(); ++part)
      for (size_t i = 0; i < channels[part].size(); ++i) *dst++ *= factors[part];
}

}  // namespace

void LoadMamba(const DecoderSpec& spec, int index, const TensorSource& source, const Worker& worker,
               const Shard& shard, MambaWeights& mamba) {
  if (shard.mamba_heads.size() == 0) return;
  const TensorNames& names = spec.names;
  const Rows rows(spec.mamba, shard);
  const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, index); };
  WeightPacker packer(source, worker);
  const TensorInfo in = packer.Find(at(names.mamba_in) + ".weight");
  std::vector<Segment> segments;
  for (const Range& each : rows.Projection()) segments.push_back({&in, each.begin, each.size()});
  packer.PackMatrix(mamba.in, segments, 0);
  const TensorInfo out = packer.Find(at(names.mamba_o) + ".weight");
  packer.PackMatrix(mamba.out, {{&out, 0, static_cast<size_t>(spec.hidden)}}, rows.inner.begin);
  packer.FillVector(mamba.log_a, at(names.mamba_decay), rows.heads);
  packer.FillVector(mamba.skip, at(names.mamba_skip), rows.heads);
  packer.FillVector(mamba.dt_bias, at(names.mamba_dt_bias), rows.heads);
  packer.FillVector(mamba.norm, at(names.mamba_norm) + ".weight", rows.inner);
  const std::string conv = at(names.mamba_conv);
  float* bias = mamba.conv_bias;
  for (const Range& channels : rows.Channels()) {
    packer.FillVector(bias, conv + ".bias", channels);
    if (bias) bias += channels.size();
  }
  if (worker.thread == 0)
    FillScaledConv(spec.mamba, rows.Channels(), source, packer.Find(conv + ".weight"), mamba.conv);
}

}  // namespace pinion
