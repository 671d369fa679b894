#include "engine/host/phases.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "engine/base/progress.h"

namespace pinion {
namespace {

constexpr int kSpins = 64;

using Groups = std::vector<int>;

// Runs body(thread) on `count` threads at once.
template <typename Body>
void OnThreads(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back([&body, t] { body(t); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Phases, HandOutEveryItemOnce) {
  constexpr size_t kChunk = 7;
  for (const Groups& groups : {Groups{1}, {3}, {7}, {1, 1}, {2, 3, 2}}) {
    const int threads = std::accumulate(groups.begin(), groups.end(), 0);
    for (const size_t items : {0u, 1u, 5u, 101u}) {
      Phases phases(groups, kSpins);
      std::mutex mutex;
      std::vector<int> shared(items), taken(items);
      OnThreads(threads, [&](int thread) {
        for (int round = 0; round < 5; ++round) {
          phases.Share(thread, items, kChunk, PhaseScope::kTeam, [&](size_t begin, size_t end) {
            const std::lock_guard lock(mutex);
            EXPECT_LT(begin, end);
            EXPECT_LE(end - begin, kChunk);
            for (size_t i = begin; i < end; ++i) ++shared[i];
          });
          phases.ShareOneByOne(thread, items, PhaseScope::kTeam, [&](size_t i) {
            const std::lock_guard lock(mutex);
            ++taken[i];
          });
        }
      });
      EXPECT_EQ(shared, std::vector<int>(items, 5)) << ::testing::PrintToString(groups);
      EXPECT_EQ(taken, std::vector<int>(items, 5)) << ::testing::PrintToString(groups);
    }
  }
}

TEST(Phases, SharesOneByOneInOrder) {
  Phases phases({1}, kSpins);
  std::vector<size_t> order;
  phases.ShareOneByOne(0, 5, PhaseScope::kTeam, [&](size_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

// A process that watches this one need not wait for the end of a long phase.
TEST(Phases, EveryChunkIsProgress) {
  const auto counts = progress::MakeCounts();
  ASSERT_TRUE(counts && progress::CountIn(counts->fd()));
  Phases phases({1}, kSpins);
  std::set<uint64_t> seen;
  const auto look = [&](size_t, size_t = 0) { seen.insert(progress::ReadCounts(*counts)); };
  phases.Share(0, 5, 1, PhaseScope::kTeam, look);
  phases.ShareOneByOne(0, 5, PhaseScope::kTeam, look);
  EXPECT_EQ(seen.size(), 10u);
}

TEST(Phases, CountTheTimeThatThreadsWaitAndNoOther) {
  constexpr auto kBusy = std::chrono::milliseconds(20);
  const auto work = [&](size_t) { std::this_thread::sleep_for(kBusy); };
  Phases alone({1}, kSpins);
  alone.ShareOneByOne(0, 2, PhaseScope::kTeam, work);
  EXPECT_EQ(alone.waited_ns(), 0u) << "nobody else holds an item";

  Phases two({2}, kSpins);
  std::atomic<bool> taken{false};
  OnThreads(2, [&](int thread) {
    // Thread 1 comes when the only item is taken, and waits for its end.
    while (thread == 1 && !taken) std::this_thread::yield();
    two.ShareOneByOne(thread, 1, PhaseScope::kTeam, [&](size_t item) {
      taken = true;
      work(item);
    });
  });
  EXPECT_GT(two.waited_ns(), 0u);
}

// Threads 0 and 2 of three go through phases while thread 1 has no core.
void ExpectNoWaitForThread1(const Groups& groups) {
  constexpr int kPhases = 10;
  constexpr size_t kItems = 16;
  Phases phases(groups, kSpins);
  std::atomic<int> passed{0};
  std::atomic<size_t> late_items{0};
  OnThreads(3, [&](int thread) {
    while (thread == 1 && passed < 2) std::this_thread::yield();
    for (int i = 0; i < kPhases; ++i) {
      const auto count = [&](size_t begin, size_t end) {
        if (thread == 1) late_items += end - begin;
      };
      phases.Share(thread, kItems, 3, PhaseScope::kTeam, count);
      phases.ShareOneByOne(thread, kItems, PhaseScope::kTeam,
                           [&](size_t item) { count(item, item + 1); });
      phases.Share(thread, 0, 1, PhaseScope::kRanks, count);
    }
    ++passed;
  });
  EXPECT_EQ(late_items, 0u);
}

TEST(Phases, DoNotWaitForAThreadThatHoldsNothing) {
  for (const Groups& groups : {Groups{3}, {1, 2}, {2, 1}}) ExpectNoWaitForThread1(groups);
}

TEST(Phases, WaitForTheChunkThatAThreadIsIn) {
  constexpr size_t kItems = 64;
  Phases phases({2}, kSpins);
  std::atomic<size_t> done{0}, passed{0};
  OnThreads(2, [&](int thread) {
    phases.Share(thread, kItems, 1, PhaseScope::kTeam, [&](size_t begin, size_t) {
      // The last item of thread 1's slice lasts until all others are done, and then some.
      if (begin == kItems - 1) {
        while (done < kItems - 1) std::this_thread::yield();
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();
        EXPECT_EQ(passed, 0u);
      }
      ++done;
    });
    ++passed;
  });
  EXPECT_EQ(done, kItems);
}

// Two ranks of three threads go through thousands of phases. Each phase writes plain memory from
// what the phase before it wrote, its rank's or all ranks', with numbers of items, chunks and ways
// of dividing drawn at random, and threads that lose their cores in and between the chunks. A
// thread that came too early, or wrote too late, would change the last row.
struct Drawn {
  size_t items, chunk;
  bool deals;
  PhaseScope scope;
  bool reads_all;  // rows of all ranks, which is safe if they synchronise before and after
};

std::vector<Drawn> DrawPhases(size_t count, std::mt19937& random) {
  std::vector<Drawn> phases;
  PhaseScope before = PhaseScope::kRanks;
  for (size_t i = 0; i < count; ++i) {
    const PhaseScope scope = random() % 2 == 0 ? PhaseScope::kRanks : PhaseScope::kTeam;
    const bool reads_all = before == PhaseScope::kRanks && scope == PhaseScope::kRanks;
    phases.push_back({random() % 24, 1 + random() % 5, random() % 4 == 0, scope, reads_all});
    before = scope;
  }
  return phases;
}

// Rows take turns, as the buffers of a forward pass do.
struct Board {
  static constexpr size_t kRanks = 2, kWidth = 24;
  uint64_t rows[kRanks][2][kWidth] = {};

  void Write(const Drawn& phase, size_t number, size_t rank, size_t item) {
    uint64_t sum = number + item;
    for (size_t from = 0; from < kRanks; ++from) {
      if (from != rank && !phase.reads_all) continue;
      for (const uint64_t value : rows[from][(number + 1) % 2]) sum = sum * 31 + value;
    }
    rows[rank][number % 2][item] = sum;
  }
};

void LoseTheCore(std::mt19937& random) {
  const auto luck = random() % 512;
  if (luck < 32) sched_yield();
  if (luck == 32) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
}

void ExpectPhasesInOrder(const Groups& of_first, const Groups& of_second) {
  constexpr size_t kPhases = 2000;
  constexpr int kThreads = 3;
  std::mt19937 random(20261121);
  const std::vector<Drawn> drawn = DrawPhases(kPhases, random);
  Board want, got;
  for (size_t i = 0; i < kPhases; ++i)
    for (size_t rank = 0; rank < Board::kRanks; ++rank)
      for (size_t item = 0; item < drawn[i].items; ++item) want.Write(drawn[i], i, rank, item);

  Phases first(of_first, kSpins), second(of_second, kSpins);
  Phases* ranks[] = {&first, &second};
  for (Phases* rank : ranks) rank->SetPeers({&first, &second});
  OnThreads(2 * kThreads, [&](int number) {
    const size_t rank = static_cast<size_t>(number / kThreads);
    const int thread = number % kThreads;
    std::mt19937 moments(static_cast<uint32_t>(number));
    for (size_t i = 0; i < kPhases; ++i) {
      const Drawn& phase = drawn[i];
      const auto write = [&](size_t begin, size_t end) {
        for (size_t item = begin; item < end; ++item) got.Write(phase, i, rank, item);
        LoseTheCore(moments);
      };
      LoseTheCore(moments);
      if (phase.deals)
        ranks[rank]->ShareOneByOne(thread, phase.items, phase.scope,
                                   [&](size_t item) { write(item, item + 1); });
      else
        ranks[rank]->Share(thread, phase.items, phase.chunk, phase.scope, write);
    }
  });
  for (size_t rank = 0; rank < Board::kRanks; ++rank)
    for (size_t row : {0, 1})
      EXPECT_TRUE(std::equal(std::begin(want.rows[rank][row]), std::end(want.rows[rank][row]),
                             std::begin(got.rows[rank][row])))
          << rank << " " << row;
}

TEST(Phases, SeeEarlierWritesAndNoLaterOnes) {
  ExpectPhasesInOrder({3}, {3});
  ExpectPhasesInOrder({1, 2}, {2, 1});
  ExpectPhasesInOrder({1, 1, 1}, {3});
}

}  // namespace
}  // namespace pinion
