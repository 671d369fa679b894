#pragma once

// A scheduler over a small pool, for tests that play the model themselves: requests are added,
// steps are made, and what was scheduled comes back in a form that can be compared.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "engine/sched/scheduler.h"

namespace pinion {

constexpr int32_t kEos = 2;

inline std::vector<int32_t> Prompt(size_t tokens, int32_t first = 1000) {
  std::vector<int32_t> prompt(tokens);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

inline std::vector<int32_t> Joined(std::vector<int32_t> text, const std::vector<int32_t>& more) {
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

// One slice as {id, first, count}; tests check `samples` themselves if it matters.
struct Share {
  uint64_t id;
  size_t first, count;
  bool operator==(const Share&) const = default;
};
inline void PrintTo(const Share& share, std::ostream* out) {
  *out << "{id " << share.id << ", first " << share.first << ", count " << share.count << "}";
}

struct Setup {
  size_t blocks = 100, block_tokens = 16, budget = 64, seqs = 8, length = 1000;
  bool caching = true;
  size_t states = 0;  // kept ones; 0: the model has none
  std::vector<Reach> reaches = {Reach{}};
  size_t steps_in_flight = 1;
};

class Bench {
 public:
  explicit Bench(const Setup& setup)
      : pool(setup.blocks, setup.block_tokens, setup.caching),
        states(static_cast<int32_t>(setup.seqs), setup.states),
        scheduler(
            {setup.budget, setup.seqs, setup.length, {}, setup.reaches, setup.steps_in_flight},
            pool, nullptr, kMachineClock, setup.states > 0 ? &states : nullptr) {}

  static std::unique_ptr<Sequence> Make(uint64_t id, std::vector<int32_t> prompt, int max_tokens) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = id;
    sequence->tokens = std::move(prompt);
    sequence->params.max_tokens = max_tokens;
    sequence->eos_ids = {kEos};
    return sequence;
  }

  Sequence* Add(uint64_t id, std::vector<int32_t> prompt, int max_tokens = 16) {
    auto sequence = Make(id, std::move(prompt), max_tokens);
    Sequence* raw = sequence.get();
    const Status added = scheduler.Add(std::move(sequence));
    EXPECT_TRUE(added) << added.error().message;
    return raw;
  }

  Sequence* AddScore(uint64_t id, std::vector<int32_t> prompt) {
    auto sequence = Make(id, std::move(prompt), 16);
    sequence->score = true;
    Sequence* raw = sequence.get();
    EXPECT_TRUE(scheduler.Add(std::move(sequence)));
    return raw;
  }

  // One step; every sampling slice yields `token`.
  std::vector<Share> Step(int32_t token = 7) {
    std::vector<Share> shares;
    std::vector<int32_t> sampled;
    for (const Slice& slice : scheduler.Schedule()) {
      shares.push_back({slice.sequence->id, slice.first, slice.count});
      if (slice.samples) sampled.push_back(token);
    }
    for (auto& sequence : scheduler.Commit(sampled)) finished.push_back(std::move(sequence));
    return shares;
  }

  void StepUntilPreemption() {
    for (int step = 0; step < 1000 && scheduler.stats().preemptions == 0; ++step) Step();
    ASSERT_EQ(scheduler.stats().preemptions, 1u);
  }

  void Drain() {
    for (int step = 0; step < 10000 && !scheduler.idle(); ++step) Step();
    EXPECT_TRUE(scheduler.idle());
  }

  BlockPool pool;
  StatePool states;
  Scheduler scheduler;
  std::vector<std::unique_ptr<Sequence>> finished;
};

inline std::string RefusalOf(Bench& bench, std::vector<int32_t> prompt, int max_tokens) {
  const Status added = bench.scheduler.Add(Bench::Make(1, std::move(prompt), max_tokens));
  EXPECT_FALSE(added);
  if (added) return "";
  EXPECT_EQ(added.error().code, ErrorCode::kUsage);
  return added.error().message;
}

}  // namespace pinion
