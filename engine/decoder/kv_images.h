#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/decoder/rank_model.h"
#include "engine/spec/spec.h"

namespace pinion {

struct BlockImages;

// Blocks of a process's ranks as bytes. An image has what the table's layers keep in the block, one
// layer after the other, each rank after rank, so that a step that computes layer after layer
// completes it from its begin to its end.
class KvImages {
 public:
  KvImages() = default;
  explicit KvImages(const DecoderSpec& spec);

  // Of a table's blocks: the bytes of the model's first `layers` layers, with which images begin.
  size_t Bytes(std::span<const RankModel> ranks, size_t table, size_t layers) const;
  void Read(std::span<const RankModel> ranks, const BlockImages& of, std::byte* images) const;
  // A rank's part of of.blocks[index].
  void Write(std::span<const RankModel> ranks, const BlockImages& of, size_t index, size_t rank,
             const std::byte* images) const;

 private:
  struct Layer {
    size_t of_model, of_cache;
  };
  template <typename Copy>
  void ForPieces(std::span<const RankModel> ranks, const BlockImages& of, size_t index, size_t rank,
                 const Copy& copy) const;

  std::vector<std::vector<Layer>> layers_;  // of each table, in order
};

}  // namespace pinion
