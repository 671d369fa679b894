#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/decoder/decoder.h"

namespace pinion {

// Which memory of the KV cache to touch before a sequence needs it. The system clears a page when
// it is first written, at 0.6 to 5 GB/s: 25 ms for a new sequence of Qwen2.5-0.5B's shape on a
// small virtual machine, which all running sequences would wait for. Memory is touched as far ahead
// of the blocks given out so far as a burst of new sequences reaches, and no farther: a cache that
// is larger than its use stays address space.
class KvAhead {
 public:
  // reserve: blocks ahead of those given out.
  KvAhead(const Decoder::KvPieces& pieces, size_t reserve) : pieces_(pieces), reserve_(reserve) {}

  struct Range {
    size_t first = 0, last = 0;
    bool empty() const { return first == last; }
  };
  // The next pieces to touch, at most `most`, if the blocks below `reached` have been given out.
  // Pieces that were used before their turn are left out. half: while sequences wait, half of the
  // reserve is enough.
  Range Next(size_t reached, size_t most, bool half = false);
  bool Left(size_t reached, bool half) const;  // whether there are any

 private:
  const Decoder::KvPieces pieces_;
  const size_t reserve_;
  size_t next_ = 0;  // the pieces below were touched or are in use
};

// The reserve of a cache: room for max_num_seqs new sequences, but at most 1 GiB or an eighth of a
// rank's cache, whichever is more. rank_bytes: of the whole cache on the largest rank.
size_t ReserveBlocks(size_t blocks, uint64_t rank_bytes, size_t max_num_seqs);

}  // namespace pinion
