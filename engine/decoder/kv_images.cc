#include "engine/decoder/kv_images.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "engine/decoder/decoder.h"
#include "engine/spec/kv_tables.h"

namespace pinion {

KvImages::KvImages(const DecoderSpec& spec) : layers_(KvTables(spec)) {
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    if (!Caches(spec.layer_specs[layer])) continue;
    const KvPlace place = KvPlaceOf(spec, layer);
    layers_[place.table].push_back({layer, place.layer});
  }
}

size_t KvImages::Bytes(std::span<const RankModel> ranks, size_t table, size_t layers) const {
  size_t bytes = 0;
  for (const Layer& layer : layers_.at(table)) {
    if (layer.of_model >= layers) break;
    for (const RankModel& rank : ranks) bytes += rank.cache.block_bytes(layer.of_cache);
  }
  return bytes;
}

// copy(bytes behind the first image, piece) for all that the rank has of of.blocks[index] within
// the bytes that are meant.
template <typename Copy>
void KvImages::ForPieces(std::span<const RankModel> ranks, const BlockImages& of, size_t index,
                         size_t rank, const Copy& copy) const {
  const size_t end = of.first + of.bytes;
  size_t at = 0;  // of the image
  for (const Layer& layer : layers_.at(of.table)) {
    for (size_t owner = 0; owner < ranks.size(); ++owner) {
      size_t begin = at;
      at += ranks[owner].cache.block_bytes(layer.of_cache);
      if (owner != rank || at <= of.first || begin >= end) continue;
      for (const auto piece : ranks[owner].cache.PiecesOf(layer.of_cache, of.blocks[index])) {
        const size_t from = std::max(begin, of.first), to = std::min(begin + piece.size(), end);
        if (from < to)
          copy(index * of.stride + from - of.first, piece.subspan(from - begin, to - from));
        begin += piece.size();
      }
    }
  }
}

void KvImages::Read(std::span<const RankModel> ranks, const BlockImages& of,
                    std::byte* images) const {
  for (size_t index = 0; index < of.blocks.size(); ++index)
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      ForPieces(ranks, of, index, rank, [&](size_t at, std::span<std::byte> piece) {
        std::memcpy(images + at, piece.data(), piece.size());
      });
}

void KvImages::Write(std::span<const RankModel> ranks, const BlockImages& of, size_t index,
                     size_t rank, const std::byte* images) const {
  ForPieces(ranks, of, index, rank, [&](size_t at, std::span<std::byte> piece) {
    std::memcpy(piece.data(), images + at, piece.size());
  });
}

}  // namespace pinion
