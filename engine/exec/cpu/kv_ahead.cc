#include "engine/exec/cpu/kv_ahead.h"

#include <algorithm>

#include "engine/kv/block_pool.h"

namespace pinion {
namespace {

// On a machine with many small caches a gibibyte each is little beside the weights, and takes half
// a second of idle time.
constexpr uint64_t kReserveBytes = uint64_t{1} << 30;
constexpr uint64_t kReservePart = 8;

size_t CeilDiv(size_t value, size_t step) { return (value + step - 1) / step; }

}  // namespace

bool KvAhead::Left(size_t reached, bool half) const {
  return !KvAhead(*this).Next(reached, 1, half).empty();
}

KvAhead::Range KvAhead::Next(size_t reached, size_t most, bool half) {
  // The span that `reached` lies in is in use, but perhaps not all of its pages.
  next_ = std::max(next_, reached / pieces_.span_blocks * pieces_.parts);
  const size_t reserve = half ? reserve_ / 2 : reserve_;
  const size_t wanted = CeilDiv(reached + reserve, pieces_.span_blocks) * pieces_.parts;
  const size_t until = reserve_ == 0 ? 0 : std::min(wanted, pieces_.count);
  if (next_ >= until) return {};
  const size_t first = next_;
  next_ = std::min(until, first + most);
  return {first, next_};
}

size_t ReserveBlocks(size_t blocks, uint64_t rank_bytes, size_t max_num_seqs) {
  if (rank_bytes == 0) return 0;
  const uint64_t bytes = std::max(kReserveBytes, rank_bytes / kReservePart);
  const auto most = static_cast<size_t>(
      static_cast<double>(bytes) / static_cast<double>(rank_bytes) * static_cast<double>(blocks));
  return std::min({blocks, most, max_num_seqs * (BlockPool::kRunBlocks + 1)});
}

}  // namespace pinion
