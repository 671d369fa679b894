// The servers here are shell scripts.

#include "harness/profile/supervise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

class SuperviseTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / StrCat("pinion-supervise-", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Leaves the file `name` when it is asked to stop.
  LaunchedServer Waiting(const std::string& name) const {
    return Script(StrCat("trap 'echo stopped > ", (folder_ / name).string(),
                         "; exit 0' TERM; while :; do sleep 0.02; done"));
  }
  static LaunchedServer Script(const std::string& text) {
    return {{{}, {"/bin/sh", "-c", text}}, {}};
  }
  bool Stopped(const std::string& name) const { return std::filesystem::exists(folder_ / name); }

  std::filesystem::path folder_;
};

TEST_F(SuperviseTest, StopsAllOnRequest) {
  int looks = 0;
  const Status done = Supervise({Waiting("a"), Waiting("b")}, [&] { return ++looks > 10; });
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_TRUE(Stopped("a") && Stopped("b"));
}

TEST_F(SuperviseTest, TheEndOfOneIsNamedAndEndsTheOthers) {
  const Status done = Supervise({Waiting("a"), Script("sleep 0.3; exit 7")}, [] { return false; });
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("replica 2 of 2 ended with exit code 7"));
  EXPECT_TRUE(Stopped("a"));
}

TEST_F(SuperviseTest, ASignalIsNamed) {
  const Status done = Supervise({Script("kill -9 $$"), Waiting("b")}, [] { return false; });
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("replica 1 of 2 was ended by signal 9 (Killed)"));
}

TEST_F(SuperviseTest, ServerThatCannotStartIsAnError) {
  const Status done =
      Supervise({Waiting("a"), {{{}, {"/no/such/program"}}, {}}}, [] { return false; });
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("/no/such/program"));
}

}  // namespace
}  // namespace pinion::harness
