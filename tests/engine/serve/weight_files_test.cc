#include "engine/serve/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/serve/engine_process.h"
#include "engine/serve/link.h"
#include "engine/weights/shared_weights.h"

namespace pinion {
namespace {

std::vector<ReplicaPlan> Replicas(std::initializer_list<int> copies) {
  std::vector<ReplicaPlan> replicas;
  for (const int copy : copies) replicas.push_back({{}, {}, {}, copy});
  return replicas;
}

TEST(WeightFiles, AreForCopiesThatSeveralShare) {
  WeightFiles files;
  auto replicas = Replicas({0, 1, 0, 2, 2});
  ASSERT_TRUE(files.Connect(replicas));
  EXPECT_EQ(files.FdOf(replicas[1]), -1);
  EXPECT_FALSE(replicas[1].options.weight_copy.is_shared());
  EXPECT_GE(files.FdOf(replicas[0]), 0);
  EXPECT_EQ(files.FdOf(replicas[0]), files.FdOf(replicas[2]));
  EXPECT_EQ(files.FdOf(replicas[3]), files.FdOf(replicas[4]));
  EXPECT_NE(files.FdOf(replicas[0]), files.FdOf(replicas[3]));
  const WeightCopy& copy = replicas[4].options.weight_copy;
  EXPECT_EQ(copy.fd, kEngineWeightsFd);
  EXPECT_EQ(copy.number, 2);
  EXPECT_EQ(copy.engines, 2);
}

TEST(WeightFiles, GiveTheirMemoryBackWhenCleared) {
  WeightFiles files;
  auto replicas = Replicas({0, 0});
  ASSERT_TRUE(files.Connect(replicas));
  const int fd = files.FdOf(replicas[0]);
  {
    auto shared = SharedWeights::Join(fd, {"x", {1 << 20}}).value();
    TouchPages(shared.Map(0, {})->data(), 1 << 20);
    ASSERT_TRUE(shared.Finish());
  }
  EXPECT_GE(SharedWeights::ResidentBytes(fd), uint64_t{1} << 20);
  files.Clear();
  EXPECT_EQ(SharedWeights::ResidentBytes(fd), 0u);
}

int ExitOfProcessThatLooksForIt(int weights_fd) {
  const auto ends = MakeLinkPair().value();
  const Descriptor own(ends.first);
  auto started = EngineProcess::Start({"/bin/sh", "-c", "[ -e /proc/self/fd/5 ]"}, {}, {},
                                      ends.second, weights_fd);
  EXPECT_TRUE(started);
  const auto exit = started->process.Wait(30);
  return exit ? exit->code : -1;
}

TEST(WeightFiles, AreInheritedByTheEngineProcess) {
  WeightFiles files;
  auto replicas = Replicas({0, 0, 1});
  ASSERT_TRUE(files.Connect(replicas));
  EXPECT_EQ(ExitOfProcessThatLooksForIt(files.FdOf(replicas[0])), 0);
  EXPECT_EQ(ExitOfProcessThatLooksForIt(files.FdOf(replicas[2])), 1);
}

}  // namespace
}  // namespace pinion
