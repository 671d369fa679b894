#include "engine/spec/kv_tables.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace pinion {
namespace {

// What limits the past that a layer's tokens see; nothing does if all of it lies within.
Reach LimitOf(const DecoderSpec& spec, size_t layer) {
  Reach reach = LayerAttention(spec, layer).reach;
  if (reach.window >= spec.max_positions) reach.window = 0;
  if (reach.chunk >= spec.max_positions) reach.chunk = 0;
  return reach;
}

bool SamePlaces(const DecoderSpec& spec, size_t a, size_t b) {
  return LayerHeads(spec, a) == LayerHeads(spec, b);
}

bool MayDivide(const DecoderSpec& spec, const std::vector<size_t>& caching) {
  return !spec.bidirectional && spec.index.heads == 0 &&
         std::all_of(caching.begin(), caching.end(),
                     [&](size_t layer) { return SamePlaces(spec, layer, caching.front()); });
}

// Layers that read another's keys and values must not see further than it keeps them.
bool ReadersAgree(const DecoderSpec& spec) {
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    const int from = spec.layer_specs[layer].kv_from;
    if (from >= 0 && LimitOf(spec, layer) != LimitOf(spec, static_cast<size_t>(from))) return false;
  }
  return true;
}

size_t TablesOf(const std::map<Reach, std::vector<size_t>>& kinds, size_t of_block) {
  size_t tables = 0;
  for (const auto& [reach, layers] : kinds) tables += (layers.size() + of_block - 1) / of_block;
  return tables;
}

}  // namespace

void AssignKvTables(DecoderSpec& spec) {
  std::vector<size_t> caching;
  std::map<Reach, std::vector<size_t>> kinds;
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    spec.layer_specs[layer].kv_table = 0;
    if (!Caches(spec.layer_specs[layer])) continue;
    caching.push_back(layer);
    kinds[LimitOf(spec, layer)].push_back(layer);
  }
  if (kinds.size() < 2 || kinds.size() > kMostKvTables || !MayDivide(spec, caching) ||
      !ReadersAgree(spec))
    return;
  size_t of_block = caching.size();
  for (const auto& [reach, layers] : kinds) of_block = std::min(of_block, layers.size());
  while (TablesOf(kinds, of_block) > kMostKvTables) ++of_block;
  int first = 0;
  for (const auto& [reach, layers] : kinds) {
    const size_t tables = (layers.size() + of_block - 1) / of_block;
    // In turns, so that a stage of neighbouring layers has about equally many of each table.
    for (size_t i = 0; i < layers.size(); ++i)
      spec.layer_specs[layers[i]].kv_table = first + static_cast<int>(i % tables);
    first += static_cast<int>(tables);
  }
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

uint64_t KvBytesOfSequence(const DecoderSpec& spec, kernels::KvDtype dtype, uint64_t tokens) {
  const std::vector<Reach> reaches = KvReaches(spec);
  uint64_t bytes = 0;
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    if (!Caches(spec.layer_specs[layer])) continue;
    const Reach& reach = reaches[KvPlaceOf(spec, layer).table];
    uint64_t kept = tokens;
    for (const int limit : {reach.window, reach.chunk})
      if (limit > 0) kept = std::min(kept, static_cast<uint64_t>(limit));
    bytes += kept * KvBytesPerToken(spec, dtype, layer);
  }
  return bytes;
}

KvPlace KvPlaceOf(const DecoderSpec& spec, size_t layer) {
  const LayerSpec* own = &spec.layer_specs[layer];
  if (own->kv_from >= 0) return KvPlaceOf(spec, static_cast<size_t>(own->kv_from));
  const auto first = spec.layer_specs.begin();
  const auto before = std::count_if(
      first, first + static_cast<ptrdiff_t>(layer),
      [&](const LayerSpec& each) { return Caches(each) && each.kv_table == own->kv_table; });
  return {static_cast<size_t>(own->kv_table), static_cast<size_t>(before)};
}

size_t KvLayers(const DecoderSpec& spec) {
  std::vector<size_t> layers(KvTables(spec));
  for (const LayerSpec& layer : spec.layer_specs)
    if (Caches(layer)) ++layers[static_cast<size_t>(layer.kv_table)];
  return *std::max_element(layers.begin(), layers.end());
}

}  // namespace pinion
