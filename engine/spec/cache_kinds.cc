#include "engine/spec/cache_kinds.h"

#include <algorithm>

#include "engine/spec/attention_spec.h"
#include "engine/spec/kv_tables.h"

namespace pinion {
namespace {

const char* CacheKindName(const KvShape& shape, const Reach& kept) {
  if (shape.latent) return "latent";
  if (kept.window > 0) return "windowed";
  return kept.chunk > 0 ? "chunked" : "full";
}

uint64_t MostTokens(const Reach& kept) { return kept.limited() ? kept.Most(SIZE_MAX) : 0; }

}  // namespace

std::vector<CacheKind> CacheKinds(const DecoderSpec& spec, kernels::KvDtype dtype,
                                  uint64_t tokens) {
  const std::vector<Reach> reaches = KvReaches(spec);
  std::vector<CacheKind> kinds;
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    if (!Caches(spec.layer_specs[layer])) continue;
    const Reach& kept = reaches[KvPlaceOf(spec, layer).table];
    const std::string name = CacheKindName(CachedShape(spec, layer), kept);
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const CacheKind& each) {
      return each.name == name && each.most_tokens == MostTokens(kept);
    });
    if (kind == kinds.end())
      kind = kinds.insert(kind, {.name = name, .most_tokens = MostTokens(kept)});
    const uint64_t token_bytes = KvBytesPerToken(spec, dtype, layer);
    ++kind->layers;
    if (!AddsToCache(spec, layer)) continue;
    kind->token_bytes += token_bytes;
    kind->sequence_bytes += kept.Most(tokens) * token_bytes;
  }
  if (const size_t layers = RecurrentLayers(spec); layers > 0)
    kinds.push_back(
        {.name = "recurrent", .layers = layers, .sequence_bytes = StateBytesPerSequence(spec)});
  return kinds;
}

}  // namespace pinion
