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

  // Leaves the file `name` when it is asked to stop, and NAME-ready once it can be asked.
  LaunchedServer Waiting(const std::string& name) const {
    const std::string file = folder_ / name;
    return Script(StrCat("trap 'echo stopped > ", file, "; exit 0' TERM; touch ", file,
                         "-ready; while :; do sleep 0.02; done"));
  }
  bool Ready(const std::string& name) const {
    return std::filesystem::exists(folder_ / (name + "-ready"));
  }
  static LaunchedServer Script(const std::string& text) {
    return {{{}, {"/bin/sh", "-c", text}}, {}};
  }
  bool Stopped(const std::string& name) const { return std::filesystem::exists(folder_ / name); }

  std::filesystem::path folder_;
};

TEST_F(SuperviseTest, StopsAllOnRequest) {
  const Status done =
      Supervise({Waiting("a"), Waiting("b")}, [&] { return Ready("a") && Ready("b"); });
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_TRUE(Stopped("a") && Stopped("b"));
}

TEST_F(SuperviseTest, TheEndOfOneIsNamedAndEndsTheOthers) {
  const auto after_a =
      StrCat("until [ -e ", (folder_ / "a-ready").string(), " ]; do sleep 0.02; done");
  const Status done =
      Supervise({Waiting("a"), Script(StrCat(after_a, "; exit 7"))}, [] { return false; });
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
