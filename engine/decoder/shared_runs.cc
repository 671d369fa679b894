#include "engine/decoder/shared_runs.h"

#include <algorithm>

namespace pinion {
namespace {

// A shared run costs each slice a partial result to merge, which shorter runs are not worth.
constexpr size_t kMinSharedTokens = 64;

class Finder {
 public:
  Finder(const StepBatch& batch, size_t block_tokens, std::span<const size_t> tables,
         const std::function<void(const SharedRun&)>& take)
      : batch_(batch), block_tokens_(block_tokens), tables_(tables), take_(take) {}

  // `slices` agree on all blocks before `block`. The tokens before `begin`, which is the first one
  // of a block at or before `block`, are covered.
  void Cover(std::span<uint32_t> slices, size_t block, size_t begin) {
    if (slices.size() == 1) return TakeRest(slices[0], begin);
    const size_t end = AgreedBlocks(slices, block);
    if (end * block_tokens_ >= begin + kMinSharedTokens) {
      take_({slices, begin, end * block_tokens_});
      begin = end * block_tokens_;
    }
    Divide(slices, end, begin);
  }

 private:
  const StepBatch::Slice& Slice(uint32_t index) const { return batch_.slices[index]; }
  // The number of blocks before the one that holds the slice's own token.
  size_t FullBlocks(uint32_t index) const { return Slice(index).first_position / block_tokens_; }

  void TakeRest(uint32_t index, size_t begin) const {
    take_({{&index, 1}, begin, Slice(index).first_position + 1});
  }

  size_t AgreedBlocks(std::span<const uint32_t> slices, size_t from) const {
    size_t agreed = FullBlocks(slices[0]);
    for (const uint32_t index : slices) {
      const size_t most = std::min(agreed, FullBlocks(index));
      agreed = from;
      while (agreed < most && Compare(slices[0], index, agreed) == 0) ++agreed;
    }
    return agreed;
  }

  // The order of two slices by their blocks of the same index in all tables; 0: the same ones.
  int Compare(uint32_t a, uint32_t b, size_t block) const {
    for (const size_t table : tables_) {
      const int32_t left = Slice(a).block_tables[table][block];
      const int32_t right = Slice(b).block_tables[table][block];
      if (left != right) return left < right ? -1 : 1;
    }
    return 0;
  }

  // Groups slices by their next block and covers each group; slices without another full block end
  // here. Puts the slices in that order.
  void Divide(std::span<uint32_t> slices, size_t block, size_t begin) {
    const auto ended = [&](uint32_t index) { return FullBlocks(index) == block; };
    const auto going = std::stable_partition(slices.begin(), slices.end(), ended);
    for (auto i = slices.begin(); i != going; ++i) TakeRest(*i, begin);
    std::stable_sort(going, slices.end(),
                     [&](uint32_t a, uint32_t b) { return Compare(a, b, block) < 0; });
    for (auto i = going; i != slices.end();) {
      const auto end =
          std::find_if(i, slices.end(), [&](uint32_t b) { return Compare(*i, b, block) != 0; });
      Cover({i, end}, block, begin);
      i = end;
    }
  }

  const StepBatch& batch_;
  const size_t block_tokens_;
  const std::span<const size_t> tables_;
  const std::function<void(const SharedRun&)>& take_;
};

}  // namespace

void FindSharedRuns(const StepBatch& batch, const std::vector<uint32_t>& slices,
                    size_t block_tokens, std::span<const size_t> tables,
                    const std::function<void(const SharedRun&)>& take) {
  std::vector<uint32_t> ordered = slices;
  if (!slices.empty()) Finder(batch, block_tokens, tables, take).Cover(ordered, 0, 0);
}

}  // namespace pinion
