#include "harness/counters/energy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

using ::testing::HasSubstr;

class EnergyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / StrCat("pinion_energy_", getpid());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Put(const std::string& zone, uint64_t microjoules) {
    const std::filesystem::path folder = root_ / "sys/class/powercap" / zone;
    std::filesystem::create_directories(folder);
    ASSERT_TRUE(WriteFile(folder / "energy_uj", StrCat(microjoules, "\n")));
    ASSERT_TRUE(WriteFile(folder / "max_energy_range_uj", "10000000\n"));
  }
  EnergyReading Now() const { return EnergyReading::Now(root_.string() + "/"); }

  std::filesystem::path root_;
};

TEST_F(EnergyTest, AddsPackagesAndNotTheirParts) {
  Put("intel-rapl:0", 1'000'000);
  Put("intel-rapl:0:1", 1'000'000);
  Put("intel-rapl:1", 0);
  const EnergyReading before = Now();
  Put("intel-rapl:0", 3'500'000);
  Put("intel-rapl:0:1", 9'000'000);
  Put("intel-rapl:1", 250'000);
  EXPECT_DOUBLE_EQ(*JoulesBetween(before, Now()), 2.75);
}

TEST_F(EnergyTest, CountersWrapAround) {
  Put("intel-rapl:0", 9'500'000);
  const EnergyReading before = Now();
  Put("intel-rapl:0", 500'000);
  EXPECT_DOUBLE_EQ(*JoulesBetween(before, Now()), 1);
}

TEST_F(EnergyTest, WithoutCountersThereIsAReason) {
  const auto joules = JoulesBetween(Now(), Now());
  ASSERT_FALSE(joules);
  EXPECT_THAT(joules.error().message, HasSubstr("not available, because"));
  std::filesystem::create_directories(root_ / "sys/class/powercap/intel-rapl:0");
  EXPECT_THAT(Now().unavailable, HasSubstr("run as root"));
}

}  // namespace
}  // namespace pinion::harness
