#include "engine/serve/replica_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace pinion {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr size_t kBlock = PrefixMemory::kBlockTokens;

// A prompt of `tokens` tokens from `start` on, so that those of one start share their prefix.
SubmitMessage Submitted(uint64_t id, size_t tokens, int start = 0, uint32_t count = 1) {
  SubmitMessage prompt;
  prompt.id = id;
  prompt.count = count;
  prompt.prompt_ids.resize(tokens);
  std::iota(prompt.prompt_ids.begin(), prompt.prompt_ids.end(), start);
  return prompt;
}

TokenEvent First(uint64_t choice) {
  TokenEvent event;
  event.request = choice;
  event.has_token = true;
  return event;
}

TokenEvent Last(uint64_t choice) {
  TokenEvent event = First(choice);
  event.finish = FinishReason::kLength;
  return event;
}

class Router : public testing::Test {
 protected:
  void Up(size_t replicas, size_t kv_tokens = 1 << 20) {
    router_.emplace(replicas);
    for (size_t i = 0; i < replicas; ++i) router_->SetUp(i, kv_tokens);
  }
  std::optional<ReplicaRouter> router_;
};

TEST_F(Router, EqualReplicasTakeTurns) {
  Up(3);
  std::set<size_t> chosen;
  for (uint64_t id = 0; id < 3; ++id) chosen.insert(*router_->Place(Submitted(id, 100, 1000 * id)));
  EXPECT_EQ(chosen.size(), 3u);
}

TEST_F(Router, OneThatTakesNoPromptsIsNeverChosen) {
  router_.emplace(3, 1);
  router_->SetUp(0, 1 << 20);
  EXPECT_FALSE(router_->any_up());
  EXPECT_EQ(router_->Place(Submitted(1, 10)), std::nullopt);
  router_->SetUp(1, 1 << 20);
  router_->SetUp(2, 1 << 20);
  EXPECT_TRUE(router_->any_up());
  std::multiset<size_t> placed;
  for (uint64_t id = 2; id < 6; ++id) placed.insert(*router_->Place(Submitted(id, 10)));
  EXPECT_THAT(placed, ElementsAre(1, 1, 2, 2));
}

TEST_F(Router, TheShorterQueueIsChosen) {
  Up(2);
  const size_t busy = *router_->Place(Submitted(0, 5000));
  EXPECT_NE(router_->Place(Submitted(1, 100, 10000)), busy);
  EXPECT_NE(router_->Place(Submitted(2, 100, 20000)), busy) << "200 tokens wait there, here 5,000";
  router_->OnEvent(First(0));
  EXPECT_EQ(router_->Place(Submitted(3, 100, 30000)), busy) << "its prompt is computed";
}

TEST_F(Router, RunningSequencesCountAsWell) {
  Up(2);
  const size_t busy = *router_->Place(Submitted(0, 10, 0, 8));
  for (uint64_t choice = 0; choice < 8; ++choice) router_->OnEvent(First(choice));
  for (uint64_t id = 10; id < 13; ++id) EXPECT_NE(router_->Place(Submitted(id, 10, 5)), busy);
  for (uint64_t choice = 0; choice < 8; ++choice) router_->OnEvent(Last(choice));
  EXPECT_EQ(router_->Place(Submitted(20, 10, 5)), busy);
}

TEST_F(Router, APromptGoesToTheReplicaWithItsPrefix) {
  Up(4);
  const size_t holder = *router_->Place(Submitted(0, 10 * kBlock));
  router_->OnEvent(Last(0));
  for (uint64_t id = 1; id < 9; ++id) {
    EXPECT_EQ(router_->Place(Submitted(id, 10 * kBlock + id)), holder);
    router_->OnEvent(Last(id));
  }
}

TEST_F(Router, ALongQueueOutweighsAPrefix) {
  Up(2);
  const size_t holder = *router_->Place(Submitted(0, 2 * kBlock));
  router_->OnEvent(Last(0));
  EXPECT_EQ(router_->Place(Submitted(1, 40 * kBlock)), holder);
  EXPECT_NE(router_->Place(Submitted(2, 2 * kBlock + 1)), holder) << "38 blocks wait there";
}

TEST_F(Router, AnotherSaltIsAnotherPrefix) {
  Up(2);
  SubmitMessage salted = Submitted(0, 10 * kBlock);
  salted.cache_salt = "a";
  const size_t holder = *router_->Place(salted);
  router_->OnEvent(Last(0));
  EXPECT_NE(router_->Place(Submitted(1, 10 * kBlock)), holder) << "it is the other one's turn";
}

TEST_F(Router, APrefixIsForgottenOnceTheCacheCannotHoldIt) {
  Up(2, 4 * kBlock);
  const size_t holder = *router_->Place(Submitted(0, 4 * kBlock));
  router_->OnEvent(Last(0));
  const size_t other = *router_->Place(Submitted(1, 4 * kBlock, 100000));
  router_->OnEvent(Last(1));
  ASSERT_NE(other, holder);
  const size_t third = *router_->Place(Submitted(2, 4 * kBlock, 200000));
  router_->OnEvent(Last(2));
  ASSERT_EQ(third, holder);
  EXPECT_EQ(router_->Place(Submitted(3, 4 * kBlock)), other) << "its turn: nobody has the prefix";
}

TEST_F(Router, AReplicaThatIsDownGetsNothingAndLosesItsPrefixes) {
  Up(2);
  const size_t first = *router_->Place(Submitted(0, 100));
  const size_t second = *router_->Place(Submitted(10, 100, 5000, 3));
  ASSERT_NE(first, second);
  router_->OnEvent(Last(10));
  EXPECT_THAT(router_->SetDown(second), ElementsAre(10));
  for (uint64_t id = 20; id < 24; ++id) EXPECT_EQ(router_->Place(Submitted(id, 100)), first);
  EXPECT_THAT(router_->SetDown(second), IsEmpty());
  router_->OnEvent(Last(11));  // nothing of it is known any more
  EXPECT_EQ(router_->SetDown(first).size(), 5u);
  EXPECT_FALSE(router_->any_up());
  EXPECT_EQ(router_->Place(Submitted(30, 100)), std::nullopt);
}

TEST_F(Router, ARangeOfChoicesIsFoundAtItsPromptsReplicas) {
  Up(2);
  const size_t first = *router_->Place(Submitted(0, 100, 0, 4));
  const size_t second = *router_->Place(Submitted(4, 100, 5000, 4));
  const auto found = router_->PlacementsOf(0, 8);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].replica, first);
  EXPECT_EQ(found[1].replica, second);
  EXPECT_EQ(router_->PlacementsOf(5, 1).front().first, 4u);
  EXPECT_THAT(router_->PlacementsOf(8, 5), IsEmpty());
  router_->Remove(4);
  EXPECT_THAT(router_->PlacementsOf(4, 4), IsEmpty());
}

TEST_F(Router, AnAbortedPromptLeavesTheQueue) {
  Up(2);
  const size_t busy = *router_->Place(Submitted(0, 5000));
  TokenEvent aborted;
  aborted.request = 0;
  aborted.finish = FinishReason::kAborted;
  router_->OnEvent(aborted);
  EXPECT_NE(router_->Place(Submitted(1, 1000, 10000)), busy) << "the other one's turn";
  EXPECT_EQ(router_->Place(Submitted(2, 1000, 20000)), busy) << "nothing waits there";
}

}  // namespace
}  // namespace pinion
