#include "engine/decoder/head_items.h"

namespace pinion {

size_t RowsTogether(size_t rows, size_t heads, size_t threads) {
  constexpr size_t kTogether = 16, kItemsPerThread = 4;
  const size_t items = (rows + kTogether - 1) / kTogether * heads;
  return items < kItemsPerThread * threads ? 1 : kTogether;
}

bool ChangesQueries(const DecoderSpec& spec, size_t layer) {
  const LayerSpec& own = spec.layer_specs[layer];
  return own.rope >= 0 || own.scales_queries || (own.qk_norm && spec.qk_norm != QkNorm::kNone);
}

}  // namespace pinion
