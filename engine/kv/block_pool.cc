#include "engine/kv/block_pool.h"

#include <algorithm>
#include <random>

#include "engine/base/check.h"
#include "engine/kv/siphash.h"

namespace pinion {
namespace {

BlockHash DrawKey() {
  std::random_device entropy;
  const auto word = [&entropy] { return uint64_t{entropy()} << 32 | entropy(); };
  return {word(), word()};
}

}  // namespace

BlockHash HashBlock(const BlockHash& parent, std::span<const int32_t> tokens) {
  static const BlockHash key = DrawKey();
  // Two tokens a word; their number distinguishes padding from a token 0.
  std::vector<uint64_t> words = {parent.low, parent.high, tokens.size()};
  words.reserve(words.size() + (tokens.size() + 1) / 2);
  for (size_t i = 0; i < tokens.size(); i += 2) {
    const uint64_t next = i + 1 < tokens.size() ? static_cast<uint32_t>(tokens[i + 1]) : 0;
    words.push_back(next << 32 | static_cast<uint32_t>(tokens[i]));
  }
  return SipHash128(key, words);
}

BlockHash HashSalt(std::string_view salt) {
  if (salt.empty()) return {};
  // No block has a predecessor of this value, which is not a hash.
  const BlockHash apart{1, 0};
  return HashBlock(apart, std::vector<int32_t>(salt.begin(), salt.end()));
}

struct BlockPool::Block {
  int references = 0;
  std::optional<BlockHash> hash;              // set if by_hash_ maps it to this block
  bool spare = false;                         // cached in spare_ instead of cached_
  std::list<int32_t>::iterator cached_place;  // valid while cached
};

BlockPool::BlockPool(size_t blocks, size_t block_tokens, bool prefix_caching)
    : block_tokens_(block_tokens), prefix_caching_(prefix_caching), blocks_(blocks), free_(blocks) {
  CHECK(block_tokens > 0);
}

BlockPool::~BlockPool() = default;

size_t BlockPool::total() const { return blocks_.size(); }
size_t BlockPool::available() const { return free_.size() + cached_.size() + spare_.size(); }
size_t BlockPool::used() const { return total() - available(); }

std::optional<int32_t> BlockPool::Allocate(std::optional<int32_t> after) {
  if (free_.empty()) Evict();
  if (free_.empty()) return std::nullopt;
  const int32_t block = after && free_.Holds(*after + 1) ? *after + 1 : NewRunBlock();
  free_.Take(block);
  reached_ = std::max(reached_, static_cast<size_t>(block) + 1);
  blocks_[block].references = 1;
  return block;
}

// Looks for a free run of twice kRunBlocks and, if a sequence ends right before it, skips half:
// that sequence keeps a gap to grow into, and the new one still gets a full run.
int32_t BlockPool::NewRunBlock() const {
  const FreeRuns::Run run = free_.Find(2 * kRunBlocks);
  const bool leave_room = run.begin > 0 && blocks_[run.begin - 1].references > 0;
  return run.begin + (leave_room ? static_cast<int32_t>(std::min(kRunBlocks, run.size() / 2)) : 0);
}

// Stops after kRunBlocks: evicting more would throw away cached prefixes without making reads
// faster.
void BlockPool::Evict() {
  std::list<int32_t>& oldest = spare_.empty() ? cached_ : spare_;
  int32_t last;
  // Blocks behind a window become spare in both orders: those of one step last to first.
  const auto beside = [&](int32_t block) {
    return block == last - 1 || (block == last + 1 && &oldest == &spare_);
  };
  do {
    if (oldest.empty()) return;
    last = oldest.front();
    oldest.pop_front();
    by_hash_.erase(*blocks_[last].hash);
    blocks_[last].hash.reset();
    ++stats_.evictions;
    free_.Add(last);
  } while (free_.size() < kRunBlocks && !oldest.empty() && beside(oldest.front()));
}

void BlockPool::Release(int32_t block) {
  Block& entry = blocks_.at(block);
  CHECK(entry.references > 0) << "block " << block << " released more often than referenced";
  if (--entry.references > 0) return;
  entry.spare = false;
  if (entry.hash)
    entry.cached_place = cached_.insert(cached_.end(), block);
  else
    free_.Add(block);
}

void BlockPool::Publish(int32_t block, const BlockHash& hash) {
  Block& entry = blocks_.at(block);
  CHECK(entry.references > 0) << "block " << block << " is not used";
  if (!prefix_caching_) return;
  // An equal block is published already: later prompts take that one.
  if (!by_hash_.try_emplace(hash, block).second) return;
  CHECK(!entry.hash) << "block " << block << " was published with another hash";
  entry.hash = hash;
}

void BlockPool::Withdraw(int32_t block) {
  Block& entry = blocks_.at(block);
  CHECK(entry.references > 0) << "block " << block << " is not used";
  if (!entry.hash) return;
  by_hash_.erase(*entry.hash);
  entry.hash.reset();
}

void BlockPool::Spare(const BlockHash& hash) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return;
  Block& entry = blocks_[found->second];
  if (entry.references > 0 || entry.spare) return;
  spare_.splice(spare_.end(), cached_, entry.cached_place);
  entry.spare = true;
}

std::optional<int32_t> BlockPool::Reuse(const BlockHash& hash) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  Block& entry = blocks_[found->second];
  if (entry.references++ == 0) (entry.spare ? spare_ : cached_).erase(entry.cached_place);
  return found->second;
}

// Blocks in use keep their references, but later prompts do not find them.
void BlockPool::DropCached() {
  for (const auto& [hash, block] : by_hash_) blocks_[block].hash.reset();
  by_hash_.clear();
  for (std::list<int32_t>* kept : {&cached_, &spare_}) {
    for (const int32_t block : *kept) free_.Add(block);
    kept->clear();
  }
}

}  // namespace pinion
