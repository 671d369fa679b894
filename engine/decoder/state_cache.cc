#include "engine/decoder/state_cache.h"

namespace pinion {
namespace {

StateShape ShapeOf(const DecoderSpec& spec, const Shard& shard) {
  if (spec.mamba.heads > 0)
    return StateShape::Of(spec.mamba, shard.mamba_heads.size(), shard.mamba_groups.size());
  if (spec.conv.width > 0) return StateShape::Of(spec.conv, shard.conv_channels.size());
  return StateShape::Of(spec.delta, shard.delta_heads.size());
}

}  // namespace

Result<StateCache> StateCache::Allocate(const DecoderSpec& spec, const Shard& shard, size_t places,
                                        const MemoryPolicy& memory) {
  StateCache cache;
  cache.shape_ = ShapeOf(spec, shard);
  for (const LayerSpec& layer : spec.layer_specs) {
    cache.order_.push_back(cache.layers_);
    cache.layers_ += Recurs(layer.mixer) ? 1 : 0;
  }
  cache.places_ = places;
  PINION_ASSIGN(cache.storage_, Pages::Allocate(BytesPerSequence(spec, shard) * places, memory));
  return cache;
}

uint64_t StateCache::BytesPerSequence(const DecoderSpec& spec, const Shard& shard) {
  return uint64_t{RecurrentLayers(spec)} * ShapeOf(spec, shard).floats() * sizeof(float);
}

float* StateCache::All(int32_t place) const {
  return storage_.as<float>() + static_cast<size_t>(place) * floats_per_place();
}

float* StateCache::Tail(size_t layer, int32_t place) const {
  const size_t index = static_cast<size_t>(place) * layers_ + order_[layer];
  return storage_.as<float>() + index * shape_.floats();
}

float* StateCache::State(size_t layer, int32_t place, size_t value_head) const {
  return Tail(layer, place) + shape_.tail_floats + value_head * shape_.state_floats;
}

}  // namespace pinion
