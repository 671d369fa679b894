#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/communicator.h"

namespace pinion::testing {

inline void ExpectGathers(Communicator& world) {
  const size_t process = world.process(), processes = world.processes();
  std::vector<uint64_t> all(processes), want(processes);
  std::iota(want.begin(), want.end(), 100);
  const uint64_t mine = 100 + process;
  world.Gather(&mine, sizeof mine, all.data());
  EXPECT_EQ(all, want);
  world.Gather(nullptr, 0, nullptr);
  // Process p has p bytes: the leader none.
  std::vector<size_t> bytes(processes);
  std::iota(bytes.begin(), bytes.end(), 0);
  const std::string letters(process, static_cast<char>('a' + process));
  std::string gathered(process == 0 ? processes * (processes - 1) / 2 : 0, '?'), expected;
  for (size_t p = 0; p < processes; ++p) expected += std::string(p, static_cast<char>('a' + p));
  world.GatherAtLeader(letters.data(), bytes, gathered.data());
  if (process == 0) EXPECT_EQ(gathered, expected);
}

inline void ExpectBroadcasts(Communicator& world) {
  EXPECT_EQ(BroadcastText(world, world.process() == 0 ? "the leader's" : "another's, longer"),
            "the leader's");
  EXPECT_EQ(BroadcastText(world, world.process() == 0 ? "" : "another's"), "");
  EXPECT_TRUE(Together(&world, {}));
}

// Round a ring, on two channels, each of a thread of its own, while all processes meet.
inline void ExpectSendsBesideCollectiveCalls(Communicator& world) {
  const size_t processes = world.processes(), next = (world.process() + 1) % processes;
  const size_t before = (world.process() + processes - 1) % processes;
  if (processes == 1) return;
  std::vector<std::thread> threads;
  for (const int channel : {0, 1000})
    threads.emplace_back([&world, next, before, channel] {
      for (size_t i = 0; i < 20; ++i) {
        const size_t mine = world.process() * 10'000 + static_cast<size_t>(channel) + i;
        size_t theirs = 0;
        // Send may wait until it is received: somebody must begin with that.
        if (world.process() == 0) world.Send(next, channel, &mine, sizeof mine);
        world.Receive(before, channel, &theirs, sizeof theirs);
        if (world.process() != 0) world.Send(next, channel, &mine, sizeof mine);
        EXPECT_EQ(theirs, before * 10'000 + static_cast<size_t>(channel) + i);
      }
    });
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(LeastOf(world, world.process() + i), i);
  for (std::thread& thread : threads) thread.join();
}

// Even processes and odd ones.
inline void ExpectParts(Communicator& world) {
  const std::unique_ptr<Communicator> part = world.Part(static_cast<int>(world.process() % 2));
  EXPECT_EQ(part->process(), world.process() / 2);
  EXPECT_EQ(part->processes(), (world.processes() + 1 - world.process() % 2) / 2);
  uint64_t sum = 0;
  for (size_t p = world.process() % 2; p < world.processes(); p += 2) sum += p;
  EXPECT_EQ(SumOf(*part, world.process()), sum);
}

// The engine's needs of a communicator, as far as calls that succeed show them. For any transport:
// all of its processes, or threads in their place, call this at once.
inline void ExpectCommunicates(Communicator& world) {
  ExpectGathers(world);
  ExpectBroadcasts(world);
  ExpectSendsBesideCollectiveCalls(world);
  ExpectParts(world);
}

}  // namespace pinion::testing
