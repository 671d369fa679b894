#include "engine/weights/conv_packer.h"

#include "engine/spec/tensor_list.h"
#include "engine/weights/weight_packer.h"

namespace pinion {

void FillConv(const std::vector<ConvRows>& parts, const TensorSource& source, float* dst) {
  size_t channels = 0, channel = 0;
  for (const ConvRows& part : parts) channels += part.rows.size();
  std::vector<std::byte> scratch;
  std::vector<float> taps;
  for (const auto& [tensor, range] : parts) {
    const auto width = static_cast<size_t>(tensor.shape.back());
    const std::byte* src = source.Rows(tensor, range.begin, range.size(), scratch);
    taps.resize(range.size() * width);
    kernels::Convert(reinterpret_cast<std::byte*>(taps.data()), kernels::Dtype::kF32, src,
                     tensor.dtype, taps.size());
    for (size_t row = 0; row < range.size(); ++row, ++channel)
      for (size_t tap = 0; tap < width; ++tap)
        dst[tap * channels + channel] = taps[row * width + tap];
  }
}

void LoadShortConv(const DecoderSpec& spec, int index, const TensorSource& source,
                   const Worker& worker, const Shard& shard, LayerWeights& layer) {
  const Range channels = shard.conv_channels;
  if (channels.size() == 0) return;
  WeightPacker packer(source, worker);
  const auto hidden = static_cast<size_t>(spec.hidden);
  const TensorInfo in = packer.Find(LayerTensor(spec.names.conv_in, index) + ".weight");
  std::vector<Segment> segments;  // of B, C and x
  for (size_t part = 0; part < 3; ++part)
    segments.push_back({&in, part * hidden + channels.begin, channels.size()});
  packer.PackMatrix(layer.qkv, segments, 0);
  if (worker.thread == 0)
    FillConv({{packer.Find(LayerTensor(spec.names.conv, index) + ".weight"), channels}}, source,
             layer.conv.taps);
}

}  // namespace pinion
