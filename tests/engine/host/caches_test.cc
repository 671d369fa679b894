#include "engine/host/caches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

using testing::ElementsAre;

// A sysfs of one CPU.
class CachesTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Add(int index, const char* level, const char* type, const char* size, const char* cpus) {
    const std::string folder =
        StrCat(root_, "/sys/devices/system/cpu/cpu3/cache/index", index, "/");
    std::filesystem::create_directories(folder);
    const std::pair<const char*, const char*> files[] = {
        {"level", level}, {"type", type}, {"size", size}, {"shared_cpu_list", cpus}};
    for (const auto& [name, text] : files)
      ASSERT_TRUE(WriteFile(folder + name, StrCat(text, "\n")));
  }

  const std::string root_ = testing::TempDir() + "pinion_caches";
};

TEST_F(CachesTest, DataCachesComeNearestFirst) {
  Add(0, "1", "Data", "48K", "3,67");
  Add(1, "1", "Instruction", "32K", "3,67");
  Add(2, "3", "Unified", "32768K", "0-7,64-71");
  Add(3, "2", "Unified", "1M", "67,3");
  const std::vector<Cache> caches = CachesOf(3, root_);
  ASSERT_EQ(caches.size(), 3u);
  EXPECT_EQ(caches[0].level, 1);
  EXPECT_EQ(caches[0].bytes, 48u << 10);
  EXPECT_THAT(caches[0].cpus, ElementsAre(3, 67));
  EXPECT_EQ(caches[1].level, 2);
  EXPECT_EQ(caches[1].bytes, 1u << 20);
  EXPECT_THAT(caches[1].cpus, ElementsAre(3, 67));
  EXPECT_EQ(caches[2].level, 3);
  EXPECT_EQ(caches[2].bytes, 32u << 20);
  EXPECT_EQ(caches[2].cpus.size(), 16u);
}

TEST_F(CachesTest, UnreadableCachesAreLeftOut) {
  Add(0, "1", "Data", "no size", "3");
  Add(1, "2", "Unified", "0K", "3");
  Add(2, "3", "Unified", "8M", "3");
  const std::vector<Cache> caches = CachesOf(3, root_);
  ASSERT_EQ(caches.size(), 1u);
  EXPECT_EQ(caches[0].level, 3);
  EXPECT_TRUE(CachesOf(4, root_).empty());
}

}  // namespace
}  // namespace pinion
