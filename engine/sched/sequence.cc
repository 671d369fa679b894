#include "engine/sched/sequence.h"

#include <span>
#include <utility>

namespace pinion {

const char* Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAborted:
      return "abort";
  }
  return "";
}

void HashBlocks(Sequence& sequence, size_t blocks, size_t block_tokens) {
  const std::span<const int32_t> tokens = sequence.tokens;
  for (size_t i = sequence.hashes.size(); i < blocks; ++i) {
    const BlockHash parent = i == 0 ? sequence.before_first : sequence.hashes[i - 1];
    sequence.hashes.push_back(HashBlock(parent, tokens.subspan(i * block_tokens, block_tokens)));
  }
}

bool ComesBefore(const Sequence& a, const Sequence& b) {
  return std::pair(a.priority, a.number) < std::pair(b.priority, b.number);
}

}  // namespace pinion
