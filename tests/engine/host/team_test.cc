#include "engine/host/team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/host/affinity.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Plan Unpinned(std::vector<int> threads_per_rank) {
  Plan plan;
  for (int threads : threads_per_rank)
    plan.ranks.push_back({static_cast<int>(plan.ranks.size()), {}, {}, threads});
  return plan;
}

Plan Pinned(std::vector<std::vector<int>> cpus_per_rank) {
  Plan plan;
  for (const auto& cpus : cpus_per_rank)
    plan.ranks.push_back(
        {static_cast<int>(plan.ranks.size()), cpus, {0}, static_cast<int>(cpus.size())});
  return plan;
}

std::unique_ptr<Ranks> MustStart(const Plan& plan) {
  auto ranks = Ranks::Start(plan);
  EXPECT_TRUE(ranks) << (ranks ? "" : ranks.error().message);
  return ranks ? std::move(*ranks) : nullptr;
}

std::vector<int> Allowed() { return ThreadAffinity().value(); }

TEST(SpinBarrier, PublishesEveryThreadsWritesToAll) {
  constexpr int kThreads = 4, kRounds = 500;  // more threads than this test may have CPUs
  SpinBarrier barrier(kThreads, 0);
  std::vector<int> round_of(kThreads, 0);  // plain: the barrier alone orders the accesses
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 1; round <= kRounds; ++round) {
        round_of[static_cast<size_t>(t)] = round;
        barrier.Wait();
        for (int seen : round_of) wrong += seen != round;
        barrier.Wait();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Worker, SlicesCoverEverythingOnceAndEvenly) {
  for (int threads : {1, 2, 3, 7, 64}) {
    for (size_t items : {0u, 1u, 5u, 64u, 1000u}) {
      size_t next = 0, smallest = items, largest = 0;
      for (int t = 0; t < threads; ++t) {
        Worker worker;
        worker.thread = t;
        worker.threads = threads;
        const auto [begin, end] = worker.Slice(items);
        EXPECT_EQ(begin, next);
        next = end;
        smallest = std::min(smallest, end - begin);
        largest = std::max(largest, end - begin);
      }
      EXPECT_EQ(next, items);
      EXPECT_LE(largest - smallest, 1u) << threads << " threads, " << items << " items";
    }
  }
}

TEST(Ranks, RunsEveryThreadOfEveryRankOnce) {
  auto ranks = MustStart(Unpinned({2, 1, 3}));
  ASSERT_TRUE(ranks);
  EXPECT_EQ(ranks->count(), 3);
  EXPECT_EQ(ranks->threads(2), 3);
  for (int round = 0; round < 50; ++round) {
    std::mutex mutex;
    std::multiset<std::pair<int, int>> seen;
    std::set<std::thread::id> ids;
    ranks->Run([&](const Worker& worker) {
      EXPECT_EQ(worker.ranks, 3);
      EXPECT_EQ(worker.threads, ranks->threads(worker.rank));
      worker.GlobalBarrier();  // an id is given anew only after its thread has ended
      const std::lock_guard lock(mutex);
      seen.emplace(worker.rank, worker.thread);
      ids.insert(std::this_thread::get_id());
    });
    EXPECT_THAT(seen, ElementsAre(std::pair(0, 0), std::pair(0, 1), std::pair(1, 0),
                                  std::pair(2, 0), std::pair(2, 1), std::pair(2, 2)));
    EXPECT_EQ(ids.size(), 6u);
  }
}

TEST(Ranks, LetsTheCallerBeThreadZeroOfRankZero) {
  auto ranks = MustStart(Unpinned({2, 2}));
  ASSERT_TRUE(ranks);
  std::thread::id leader;
  ranks->Run([&](const Worker& worker) {
    if (worker.rank == 0 && worker.thread == 0) leader = std::this_thread::get_id();
  });
  EXPECT_EQ(leader, std::this_thread::get_id());
}

// 4 ranks on the 2 CPUs of a small machine: waiting threads must yield to those they wait for.
TEST(Ranks, FinishesWithMoreRanksThanCpus) {
  auto ranks = MustStart(Unpinned({1, 1, 1, 1}));
  ASSERT_TRUE(ranks);
  std::vector<int> part(4), sum(4);
  for (int round = 0; round < 200; ++round) {
    ranks->Run([&](const Worker& worker) {
      const auto rank = static_cast<size_t>(worker.rank);
      part[rank] = worker.rank + round;
      worker.GlobalBarrier();
      sum[rank] = std::accumulate(part.begin(), part.end(), 0);
      worker.GlobalBarrier();
      part[rank] = -1;
    });
    EXPECT_THAT(sum, ::testing::Each(6 + 4 * round));
  }
}

TEST(Ranks, PinsEachThreadAndRestoresTheCaller) {
  const std::vector<int> before = Allowed();
  if (before.size() < 2) GTEST_SKIP() << "needs 2 CPUs";
  {
    auto ranks = MustStart(Pinned({{before[1]}, {before[0]}}));
    ASSERT_TRUE(ranks);
    std::vector<std::vector<int>> at(2);
    ranks->Run([&](const Worker& worker) { at[static_cast<size_t>(worker.rank)] = Allowed(); });
    EXPECT_THAT(at, ElementsAre(ElementsAre(before[1]), ElementsAre(before[0])));
  }
  EXPECT_EQ(Allowed(), before);
  auto free = MustStart(Unpinned({2}));
  ASSERT_TRUE(free);
  std::vector<std::vector<int>> at(2);
  free->Run([&](const Worker& worker) { at[static_cast<size_t>(worker.thread)] = Allowed(); });
  EXPECT_THAT(at, ElementsAre(before, before)) << "members of an earlier team stayed pinned";
}

// libgomp ends the surplus threads of a smaller region; the next team has new, unpinned members.
TEST(Ranks, PinsMembersThatOpenMpReplaced) {
  const std::vector<int> before = Allowed();
  if (before.size() < 2) GTEST_SKIP() << "needs 2 CPUs";
  auto ranks = MustStart(Pinned({{before[0], before[1]}}));
  ASSERT_TRUE(ranks);
  int alone = 0;
#pragma omp parallel num_threads(1)
  alone += omp_get_num_threads();
  ASSERT_EQ(alone, 1);
  std::vector<std::vector<int>> at(2);
  ranks->Run([&](const Worker& worker) { at[static_cast<size_t>(worker.thread)] = Allowed(); });
  EXPECT_THAT(at, ElementsAre(ElementsAre(before[0]), ElementsAre(before[1])));
}

TEST(Ranks, IgnoresTheEnvironmentsThreadCount) {
  omp_set_num_threads(1);
  omp_set_dynamic(1);
  auto ranks = MustStart(Unpinned({3, 2}));
  ASSERT_TRUE(ranks);
  std::atomic<int> threads{0};
  ranks->Run([&](const Worker&) { ++threads; });
  EXPECT_EQ(threads, 5);
  omp_set_dynamic(0);
}

TEST(Ranks, NamesTheCpuThatCannotBePinned) {
  const auto ranks = Ranks::Start(Pinned({{Allowed()[0]}, {4095}}));
  ASSERT_FALSE(ranks);
  EXPECT_THAT(ranks.error().message,
              ::testing::AllOf(HasSubstr("rank 1"), HasSubstr("cpu 4095"), HasSubstr("topo")));
}

TEST(Ranks, RefusesAPlanWhoseThreadsAndCpusDisagree) {
  Plan plan = Pinned({{0}});
  plan.ranks[0].threads = 2;
  EXPECT_FALSE(Ranks::Start(plan));
  EXPECT_FALSE(Ranks::Start(Plan{}));
}

TEST(Ranks, SaysSoWhenOpenMpGivesFewerThreads) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under ThreadSanitizer teams are made without OpenMP";
#endif
  omp_set_max_active_levels(0);
  const auto ranks = Ranks::Start(Unpinned({2}));
  omp_set_max_active_levels(1);
  ASSERT_FALSE(ranks);
  EXPECT_THAT(ranks.error().message, HasSubstr("1 instead of 2"));
}

// How often each thread has been switched away from, which stays the same only while it sleeps;
// nothing if one of them does not sleep.
std::optional<std::vector<std::string>> SwitchesOfSleepers(const std::set<pid_t>& threads) {
  std::vector<std::string> switches;
  for (const pid_t thread : threads) {
    const std::string status = ReadFile(StrCat("/proc/self/task/", thread, "/status")).value_or("");
    if (status.empty()) continue;  // it has ended
    if (status.find("\nState:\tS") == std::string::npos) return std::nullopt;
    switches.push_back(status.substr(status.find("voluntary_ctxt_switches")));
  }
  return switches;
}

// A thread that spins never sleeps, and one that polls is switched to again and again: a machine's
// load does neither to a thread that waits. The attempts only bound a failure.
TEST(Ranks, SleepsWithoutWakingWhileIdle) {
  auto ranks = MustStart(Unpinned({2, 2}));
  ASSERT_TRUE(ranks);
  std::mutex mutex;
  std::set<pid_t> threads;
  ranks->Run([&](const Worker& worker) {
    worker.GlobalBarrier();
    const std::lock_guard lock(mutex);
    threads.insert(gettid());
  });
  ASSERT_EQ(threads.erase(gettid()), 1u);
  bool asleep = false;
  for (int attempt = 0; attempt < 200 && !asleep; ++attempt) {
    const auto before = SwitchesOfSleepers(threads);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    asleep = before && before == SwitchesOfSleepers(threads);
  }
  EXPECT_TRUE(asleep);
}

}  // namespace
}  // namespace pinion
