// Prefixes of models with windows that outlive others if the cache is too small for all. Played
// with as many tables as Gemma 3 has in a group of six layers, windows of four blocks.

#include <gtest/gtest.h>

#include "engine/sched/scheduler.h"
#include "scheduler_bench.h"

namespace pinion {
namespace {

constexpr size_t kBlockTokens = 16, kWindow = 64;
// Full attention beside windows, of which a token in the middle of a block sees parts of five
// blocks.
constexpr size_t kWindows = 5, kWindowBlocks = 5;

Setup SetupOf(size_t blocks) {
  Setup setup{.blocks = blocks, .block_tokens = kBlockTokens, .budget = 64};
  setup.reaches.assign(1 + kWindows, Reach{.window = static_cast<int>(kWindow)});
  setup.reaches[0] = {};
  return setup;
}

// How many tokens of the prompt were in the cache.
size_t CachedOf(Bench& bench, const std::vector<int32_t>& prompt, int output) {
  bench.Add(1, prompt, output);
  bench.Drain();
  return bench.finished.back()->cached_prompt_tokens;
}

// Six conversations take turns, each of which leaves out the end of the answer before: a block less
// than was computed. The cache has room for what their next turns need and for the one that runs,
// but not for all that they have computed.
TEST(WindowCache, ConversationsOutliveBlocksBehindTheirWindows) {
  constexpr size_t kConversations = 6, kTurns = 4, kTokens = 163, kLeftOut = 4;
  constexpr size_t kLongest = (kTurns * kTokens + kBlockTokens - 1) / kBlockTokens;
  constexpr size_t kNeeded = kLongest + kWindows * 2 * (kWindowBlocks + 1);  // and a prompt's end
  Bench bench(SetupOf(kConversations * kNeeded + kLongest));
  std::vector<std::vector<int32_t>> texts(kConversations);
  for (size_t turn = 0; turn < kTurns; ++turn)
    for (size_t i = 0; i < kConversations; ++i) {
      const size_t before = texts[i].size();
      const auto first = static_cast<int32_t>(10000 * (i + 1) + 1000 * turn);
      const size_t more = kTokens - 20 + (turn > 0 ? 1 : 0);  // ends two tokens into a block
      const size_t cached = CachedOf(bench, Joined(texts[i], Prompt(more, first)), 20);
      EXPECT_EQ(cached, before / kBlockTokens * kBlockTokens) << i << " in turn " << turn;
      texts[i] = bench.finished.back()->tokens;
      ASSERT_EQ(texts[i].size() % kBlockTokens, 3u);
      texts[i].resize(texts[i].size() - kLeftOut);
    }
}

// The second one of a kind shows where prompts part; from the third on they find what they share.
TEST(WindowCache, PromptsThatPartFindTheirSharedBlocksInAFullCache) {
  constexpr size_t kShared = 320, kOwn = 320;
  Bench bench(SetupOf(400));
  for (int request = 0; request < 20; ++request) {
    const size_t cached =
        CachedOf(bench, Joined(Prompt(kShared), Prompt(kOwn, 10000 * (request + 1))), 4);
    if (request > 1) {
      EXPECT_EQ(cached, kShared) << request;
    }
    for (int other = 1; other < 3; ++other)
      CachedOf(bench, Prompt(kShared + kOwn, 1000000 * other + 1000 * request), 4);
  }
}

// A template opens the answer behind the prompt, and the next prompt has neither.
TEST(WindowCache, APromptIsFoundThoughItsAnswerIsNotRepeated) {
  constexpr size_t kTokens = 320;
  Bench bench(SetupOf(3 * kTokens / kBlockTokens * (1 + kWindows)));
  CachedOf(bench, Prompt(kTokens + 2), 200);
  for (int other = 1; other < 4; ++other) CachedOf(bench, Prompt(kTokens, 10000 * other), 4);
  EXPECT_EQ(CachedOf(bench, Joined(Prompt(kTokens - 3), Prompt(100, 50000)), 4),
            kTokens - kBlockTokens);
}

}  // namespace
}  // namespace pinion
