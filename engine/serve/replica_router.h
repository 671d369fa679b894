#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/serve/link.h"

namespace pinion {

// The prefixes of prompts that a replica has computed, most recently used last: the blocks that its
// prefix cache may still hold. A prefix is a number of whole blocks of kBlockTokens.
class PrefixMemory {
 public:
  static constexpr size_t kBlockTokens = 64;

  // Forgets the oldest beyond so many tokens.
  void SetCapacity(size_t tokens) { most_blocks_ = tokens / kBlockTokens; }
  // Tokens of the longest known prefix, by the hashes of its blocks (HashesOf).
  size_t Known(std::span<const uint64_t> hashes) const;
  void Add(std::span<const uint64_t> hashes);
  void Clear();

  // Of each whole block, a hash of all tokens up to its end; `salt` keeps caches apart.
  static std::vector<uint64_t> HashesOf(std::span<const int32_t> tokens, std::string_view salt);

 private:
  size_t most_blocks_ = SIZE_MAX;
  std::list<uint64_t> by_age_;
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> known_;
};

// Chooses, among several engines of one model, the one that computes a prompt: the one that has the
// least to compute before its first token, which is the prompt without the prefix that this engine
// has seen, after the prompts that already wait for it. Knows neither processes nor sockets.
// Thread rule: one thread.
class ReplicaRouter {
 public:
  // The first `unchosen` of them take no prompts: they compute those of the others.
  explicit ReplicaRouter(size_t replicas, size_t unchosen = 0)
      : replicas_(replicas), unchosen_(unchosen) {}

  // A replica that is up may be chosen; `kv_tokens`: the tokens that its cache holds.
  void SetUp(size_t replica, size_t kv_tokens);
  // Takes it out, and returns the first choices of the prompts that it had.
  std::vector<uint64_t> SetDown(size_t replica);
  bool any_up() const;  // of those that may be chosen
  bool is_up(size_t replica) const { return replicas_[replica].up; }

  // The replica that a prompt goes to, which is remembered; nullopt if no replica is up.
  std::optional<size_t> Place(const SubmitMessage& prompt);
  // An event of a choice from its replica: its first token, its end.
  void OnEvent(const TokenEvent& event);
  // A prompt that its replica has refused.
  void Remove(uint64_t first_choice);
  // The prompts, by their first choices, of which some are among `count` choices from `first` on,
  // and where each is.
  struct Placement {
    uint64_t first = 0;
    uint32_t count = 0;
    size_t replica = 0;
  };
  std::vector<Placement> PlacementsOf(uint64_t first, uint32_t count) const;

 private:
  struct Replica {
    bool up = false;
    size_t waiting_tokens = 0;  // of prompts without a token yet
    size_t choices = 0;         // that live
    PrefixMemory prefixes;
  };
  struct Prompt {
    size_t replica = 0;
    uint32_t count = 0, left = 0;  // choices: all, and those that live
    size_t waiting_tokens = 0;     // 0 once a choice has a token
  };
  using Prompts = std::map<uint64_t, Prompt>;  // by their first choices

  Prompts::iterator Find(uint64_t choice);
  void MarkBegun(Prompt& prompt);
  void Erase(Prompts::iterator prompt);

  std::vector<Replica> replicas_;
  const size_t unchosen_;
  Prompts prompts_;
  size_t last_ = 0;  // replica that was chosen last: of equal ones the next one is
};

}  // namespace pinion
