#include "engine/serve/replica_router.h"

#include <algorithm>
#include <limits>

namespace pinion {
namespace {

// The delay of a new prompt by a sequence that runs: a step reads the weights once for all rows,
// but the prompt's chunks share the step's bound with it. Prompt tokens.
constexpr size_t kTokensPerRunningChoice = 16;

// FNV-1a over 32-bit words.
constexpr uint64_t kBasis = 0xcbf29ce484222325, kPrime = 0x100000001b3;

}  // namespace

std::vector<uint64_t> PrefixMemory::HashesOf(std::span<const int32_t> tokens,
                                             std::string_view salt) {
  uint64_t hash = kBasis;
  for (const char letter : salt) hash = (hash ^ static_cast<unsigned char>(letter)) * kPrime;
  std::vector<uint64_t> hashes;
  hashes.reserve(tokens.size() / kBlockTokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens[i])) * kPrime;
    if ((i + 1) % kBlockTokens == 0) hashes.push_back(hash);
  }
  return hashes;
}

size_t PrefixMemory::Known(std::span<const uint64_t> hashes) const {
  size_t blocks = 0;
  while (blocks < hashes.size() && known_.count(hashes[blocks])) ++blocks;
  return blocks * kBlockTokens;
}

void PrefixMemory::Add(std::span<const uint64_t> hashes) {
  // The last block first, so that a prefix outlives what extends it.
  for (size_t i = hashes.size(); i-- > 0;) {
    const auto [known, is_new] = known_.try_emplace(hashes[i], by_age_.end());
    if (is_new)
      known->second = by_age_.insert(by_age_.end(), hashes[i]);
    else
      by_age_.splice(by_age_.end(), by_age_, known->second);
  }
  while (by_age_.size() > most_blocks_) {
    known_.erase(by_age_.front());
    by_age_.pop_front();
  }
}

void PrefixMemory::Clear() {
  known_.clear();
  by_age_.clear();
}

void ReplicaRouter::SetUp(size_t replica, size_t kv_tokens) {
  replicas_[replica].up = true;
  replicas_[replica].prefixes.SetCapacity(kv_tokens);
}

std::vector<uint64_t> ReplicaRouter::SetDown(size_t replica) {
  std::vector<uint64_t> lost;
  for (auto at = prompts_.begin(); at != prompts_.end();) {
    const auto next = std::next(at);
    if (at->second.replica == replica) {
      lost.push_back(at->first);
      Erase(at);
    }
    at = next;
  }
  replicas_[replica] = {};
  return lost;
}

bool ReplicaRouter::any_up() const {
  return std::any_of(replicas_.begin() + static_cast<ptrdiff_t>(unchosen_), replicas_.end(),
                     [](const Replica& one) { return one.up; });
}

std::optional<size_t> ReplicaRouter::Place(const SubmitMessage& prompt) {
  std::vector<uint64_t> hashes;
  if (replicas_.size() > 1) hashes = PrefixMemory::HashesOf(prompt.prompt_ids, prompt.cache_salt);
  std::optional<size_t> best;
  size_t least = std::numeric_limits<size_t>::max(), tokens = 0;
  for (size_t i = 1; i <= replicas_.size(); ++i) {
    const size_t at = (last_ + i) % replicas_.size();
    const Replica& replica = replicas_[at];
    if (!replica.up || at < unchosen_) continue;
    const size_t own = prompt.prompt_ids.size() - replica.prefixes.Known(hashes);
    const size_t cost = own + replica.waiting_tokens + kTokensPerRunningChoice * replica.choices;
    if (cost >= least) continue;
    best = at;
    least = cost;
    tokens = own;
  }
  if (!best) return best;
  last_ = *best;
  Replica& replica = replicas_[*best];
  replica.prefixes.Add(hashes);
  replica.waiting_tokens += tokens;
  replica.choices += prompt.count;
  prompts_[prompt.id] = {*best, prompt.count, prompt.count, tokens};
  return best;
}

ReplicaRouter::Prompts::iterator ReplicaRouter::Find(uint64_t choice) {
  auto found = prompts_.upper_bound(choice);
  if (found == prompts_.begin()) return prompts_.end();
  --found;
  return choice - found->first < found->second.count ? found : prompts_.end();
}

void ReplicaRouter::MarkBegun(Prompt& prompt) {
  replicas_[prompt.replica].waiting_tokens -= prompt.waiting_tokens;
  prompt.waiting_tokens = 0;
}

void ReplicaRouter::OnEvent(const TokenEvent& event) {
  const auto found = Find(event.request);
  if (found == prompts_.end()) return;
  if (event.has_token || event.finish != FinishReason::kNone) MarkBegun(found->second);
  if (event.finish == FinishReason::kNone) return;
  --replicas_[found->second.replica].choices;
  if (--found->second.left == 0) prompts_.erase(found);
}

void ReplicaRouter::Remove(uint64_t first_choice) {
  if (const auto found = prompts_.find(first_choice); found != prompts_.end()) Erase(found);
}

void ReplicaRouter::Erase(Prompts::iterator prompt) {
  MarkBegun(prompt->second);
  replicas_[prompt->second.replica].choices -= prompt->second.left;
  prompts_.erase(prompt);
}

std::vector<ReplicaRouter::Placement> ReplicaRouter::PlacementsOf(uint64_t first,
                                                                  uint32_t count) const {
  std::vector<Placement> found;
  auto at = prompts_.upper_bound(first);
  if (at != prompts_.begin()) --at;
  for (; at != prompts_.end() && at->first < first + count; ++at)
    if (at->first + at->second.count > first)
      found.push_back({at->first, at->second.count, at->second.replica});
  return found;
}

}  // namespace pinion
