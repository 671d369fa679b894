#include "engine/host/runtime_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace pinion {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

class RuntimeChoiceTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("pinion-runtime-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    for (const char* file : {"libtcmalloc_minimal.so.4", "libomp.so.5"})
      std::ofstream(folder_ / file) << "x";
    offer_.library_folders = {"/nonexistent", folder_.string()};
    offer_.huge_pages = "always [madvise] never";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const char* file) const { return (folder_ / file).string(); }

  std::filesystem::path folder_;
  RuntimeOffer offer_;
};

TEST_F(RuntimeChoiceTest, TheDefaultNeedsNothing) {
  offer_ = {};
  EXPECT_THAT(*EnvironmentOf({}, offer_), IsEmpty());
}

TEST_F(RuntimeChoiceTest, LibrariesArePreloadedAfterExistingOnes) {
  offer_.preload = "/a.so";
  EXPECT_THAT(*EnvironmentOf({"tcmalloc", "libomp", "on"}, offer_),
              ElementsAre(Pair("LD_PRELOAD", "/a.so:" + Path("libtcmalloc_minimal.so.4") + ":" +
                                                 Path("libomp.so.5"))));
}

TEST_F(RuntimeChoiceTest, ShownFilesHaveTheirPathsIfTheyAreHere) {
  EXPECT_THAT(PreloadedFiles({"tcmalloc", "libiomp5", "on"}, offer_),
              ElementsAre(Path("libtcmalloc_minimal.so.4"), "libiomp5.so"));
  EXPECT_THAT(PreloadedFiles({}, offer_), IsEmpty());
}

TEST_F(RuntimeChoiceTest, AChoiceCanBeTakenAwayAgain) {
  EXPECT_EQ(WithoutChosenLibraries("/a.so:/usr/lib/libtcmalloc_minimal.so.4:libomp.so.5"), "/a.so");
  EXPECT_EQ(WithoutChosenLibraries("/usr/lib/libtcmalloc_minimal.so.4"), "");
  EXPECT_EQ(WithoutChosenLibraries(""), "");
}

TEST_F(RuntimeChoiceTest, HugePagesCanBeTurnedOffIfTheKernelHasThem) {
  EXPECT_THAT(*EnvironmentOf({"system", "system", "off"}, offer_),
              ElementsAre(Pair("PINION_HUGE_PAGES", "0")));
  offer_.huge_pages = "always madvise [never]";
  EXPECT_THAT(EnvironmentOf({"system", "system", "off"}, offer_).error().message,
              HasSubstr("huge_pages=off has no effect here"));
}

TEST_F(RuntimeChoiceTest, ErrorForAMissingLibraryNamesItsPackage) {
  EXPECT_THAT(EnvironmentOf({"system", "libiomp5", "on"}, offer_).error().message,
              HasSubstr("libiomp5 is unavailable: libiomp5.so is in none of /nonexistent"));
  EXPECT_THAT(EnvironmentOf({"/tmp/evil.so", "system", "on"}, offer_).error().message,
              HasSubstr("allocator '/tmp/evil.so' is unknown; use one of system, tcmalloc"));
}

}  // namespace
}  // namespace pinion
