#include "engine/spec/kv_tables.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace pinion {
namespace {

// The limits of a layer's reach, without those that no sequence of this model exceeds.
Reach LimitOf(const DecoderSpec& spec, size_t layer) {
  Reach reach = LayerAttention(spec, layer).reach;
  if (reach.window >= spec.max_positions) reach.window = 0;
  if (reach.chunk >= spec.max_positions) reach.chunk = 0;
  return reach;
}

// A token's size in the cache of a layer, up to a factor that all layers share.
size_t EntryOf(const DecoderSpec& spec, size_t layer) {
  return static_cast<size_t>(LayerHeads(spec, layer).kv());
}

// Layers that read another's keys and values must not see further than it keeps them.
bool ReadersAgree(const DecoderSpec& spec) {
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    const int from = spec.layer_specs[layer].kv_from;
    if (from >= 0 && LimitOf(spec, layer) != LimitOf(spec, static_cast<size_t>(from))) return false;
  }
  return true;
}

// The layers of a kind, distributed over tables of blocks that hold so much of a token. In turns,
// so that a stage of neighbouring layers has about equally many of each table.
std::vector<std::vector<size_t>> DistributeLayers(const DecoderSpec& spec,
                                                  const std::vector<size_t>& layers, size_t block) {
  size_t widest = 0;
  for (const size_t layer : layers) widest = std::max(widest, EntryOf(spec, layer));
  const size_t of_table = block / widest, tables = (layers.size() + of_table - 1) / of_table;
  std::vector<std::vector<size_t>> layers_of(tables);
  for (size_t i = 0; i < layers.size(); ++i) layers_of[i % tables].push_back(layers[i]);
  return layers_of;
}

}  // namespace

void AssignKvTables(DecoderSpec& spec) {
  std::map<Reach, std::vector<size_t>> kinds;
  size_t widest = 0;
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    spec.layer_specs[layer].kv_table = 0;
    if (!Caches(spec.layer_specs[layer])) continue;
    kinds[LimitOf(spec, layer)].push_back(layer);
    widest = std::max(widest, EntryOf(spec, layer));
  }
  if (kinds.size() < 2 || kinds.size() > kMostKvTables || spec.bidirectional ||
      spec.index.heads > 0 || !ReadersAgree(spec))
    return;
  size_t block = SIZE_MAX;
  for (const auto& [reach, layers] : kinds) {
    size_t entries = 0;
    for (const size_t layer : layers) entries += EntryOf(spec, layer);
    block = std::min(block, entries);
  }
  std::vector<std::vector<size_t>> tables;
  for (block = std::max(block, widest);; ++block) {
    tables.clear();
    for (const auto& [reach, layers] : kinds)
      for (auto& table : DistributeLayers(spec, layers, block)) tables.push_back(std::move(table));
    if (tables.size() <= kMostKvTables) break;
  }
  for (size_t table = 0; table < tables.size(); ++table)
    for (const size_t layer : tables[table])
      spec.layer_specs[layer].kv_table = static_cast<int>(table);
}

size_t KvTables(const DecoderSpec& spec) {
  int last = 0;
  for (const LayerSpec& layer : spec.layer_specs) last = std::max(last, layer.kv_table);
  return static_cast<size_t>(last) + 1;
}

std::vector<Reach> KvReaches(const DecoderSpec& spec) {
  std::vector<Reach> reaches(KvTables(spec));
  std::vector<bool> known(reaches.size());
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    if (!Attends(spec.layer_specs[layer].mixer)) continue;
    const size_t table = KvPlaceOf(spec, layer).table;
    const Reach reach = LimitOf(spec, layer);
    const bool keeps_all =
        reach.ahead > 0 || reach.chosen > 0 || (known[table] && reach != reaches[table]);
    reaches[table] = keeps_all ? Reach{} : reach;
    known[table] = true;
  }
  return reaches;
}

uint64_t KvBytesPerToken(const DecoderSpec& spec, kernels::KvDtype dtype) {
  uint64_t bytes = 0;
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer)
    if (AddsToCache(spec, layer)) bytes += KvBytesPerToken(spec, dtype, layer);
  return bytes;
}

uint64_t KvBytesOfSequence(const DecoderSpec& spec, kernels::KvDtype dtype, uint64_t tokens) {
  const std::vector<Reach> reaches = KvReaches(spec);
  uint64_t bytes = 0;
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    if (!AddsToCache(spec, layer)) continue;
    const Reach& reach = reaches[KvPlaceOf(spec, layer).table];
    bytes += reach.Most(tokens) * KvBytesPerToken(spec, dtype, layer);
  }
  return bytes;
}

bool ShareCacheLayers(const DecoderSpec& spec) {
  std::optional<HeadShape> shape;  // of the layers so far
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    if (!Caches(spec.layer_specs[layer])) continue;
    const HeadShape own = LayerHeads(spec, layer);
    if (own != shape.value_or(own)) return false;
    shape = own;
  }
  return true;
}

bool KeepsOneLayer(const DecoderSpec& spec) {
  const auto reads_another = [](const LayerSpec& layer) { return layer.kv_from >= 0; };
  return spec.bidirectional && ShareCacheLayers(spec) &&
         std::ranges::none_of(spec.layer_specs, reads_another);
}

bool AddsToCache(const DecoderSpec& spec, size_t layer) {
  const auto first = spec.layer_specs.begin(), own = first + static_cast<ptrdiff_t>(layer);
  return Caches(*own) && !(KeepsOneLayer(spec) && std::any_of(first, own, Caches));
}

KvPlace KvPlaceOf(const DecoderSpec& spec, size_t layer) {
  if (KeepsOneLayer(spec)) return {};
  const LayerSpec* own = &spec.layer_specs[layer];
  if (own->kv_from >= 0) return KvPlaceOf(spec, static_cast<size_t>(own->kv_from));
  const bool of_table = ShareCacheLayers(spec);
  const auto first = spec.layer_specs.begin();
  const auto before =
      std::count_if(first, first + static_cast<ptrdiff_t>(layer), [&](const LayerSpec& each) {
        return Caches(each) && (!of_table || each.kv_table == own->kv_table);
      });
  return {static_cast<size_t>(own->kv_table), static_cast<size_t>(before)};
}

size_t KvLayers(const DecoderSpec& spec) {
  size_t layers = 0;
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer)
    if (Caches(spec.layer_specs[layer]))
      layers = std::max(layers, KvPlaceOf(spec, layer).layer + 1);
  return layers;
}

}  // namespace pinion
