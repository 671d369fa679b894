#include "harness/sweep/proposer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "engine/base/file.h"
#include "made_up_rows.h"

namespace pinion::harness {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A shell script in the place of Python, which gets Optuna's helper as an argument and ignores it.
class ProposerTest : public testing::Test {
 protected:
  void SetUp() override {
    script_ = std::filesystem::temp_directory_path() /
              ("pinion_proposer_" + std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    setenv("PINION_PYTHON", script_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("PINION_PYTHON");
    std::filesystem::remove(script_);
  }

  Result<std::unique_ptr<Proposer>> Start(const std::string& script, double patience_s) {
    EXPECT_TRUE(WriteFile(script_, "#!/bin/sh\n" + script));
    chmod(script_.c_str(), 0755);
    return StartTpe(
        MadeUpRows(6), [] { return std::string(); }, patience_s);
  }

  // Its answer to a question for two candidates of 2, 3 and 5.
  Result<std::vector<int>> Answer(const std::string& line) {
    const auto tpe = Start("read -r points; echo '{\"optuna\":\"4\"}'\nread -r asked; " + line, 60);
    EXPECT_TRUE(tpe) << tpe.error().message;
    return tpe ? (*tpe)->Propose({{}, {2, 3, 5}, 2, 1}) : std::vector<int>();
  }

  std::filesystem::path script_;
};

TEST_F(ProposerTest, OneThatIsSilentAtItsStartIsEndedWithTheWayOut) {
  const auto tpe = Start("exec sleep 600", 0.3);
  ASSERT_FALSE(tpe);
  EXPECT_THAT(tpe.error().message,
              AllOf(HasSubstr("Optuna's process has not answered for 0.3 s and was ended: see "),
                    HasSubstr(script_.string() + " -c 'import optuna'"), HasSubstr("--strategy"),
                    Not(HasSubstr("pip install"))));
}

TEST_F(ProposerTest, OneThatFallsSilentIsEndedWithTheWayOut) {
  const auto tpe = Start("read -r points; echo '{\"optuna\":\"4\"}'; exec sleep 600", 1);
  ASSERT_TRUE(tpe) << tpe.error().message;
  const auto proposed = (*tpe)->Propose({{}, {2, 3, 5}, 2, 1});
  ASSERT_FALSE(proposed);
  EXPECT_THAT(proposed.error().message,
              AllOf(HasSubstr("has not answered for 1 s and was ended"), HasSubstr("--resume"),
                    HasSubstr("another --strategy")));
}

TEST_F(ProposerTest, AnErrorThatIsNotATextIsTold) {
  const auto tpe = Start("read -r points; echo '{\"error\":[5]}'", 60);
  ASSERT_FALSE(tpe);
  EXPECT_EQ(tpe.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(tpe.error().message, HasSubstr(" has none ([5])"));
}

TEST_F(ProposerTest, AProposalOfTheCandidatesAskedAboutIsTaken) {
  EXPECT_THAT(*Answer("echo '{\"proposed\":[5,2]}'"), ElementsAre(5, 2));
}

TEST_F(ProposerTest, AnyOtherAnswerIsRefused) {
  for (const char* answer : {"[2]", "{}", "{\"proposed\":2}", "{\"proposed\":[2,2]}",
                             "{\"proposed\":[\"2\",3]}", "{\"proposed\":[2.0,3]}",
                             "{\"proposed\":[2,3,5]}", "{\"proposed\":[2,9223372036854775807]}",
                             "{\"proposed\":[2,4]}", "{\"proposed\":[]}", "{\"proposed\":[2]}"}) {
    const auto proposed = Answer(std::string("echo '") + answer + "'");
    ASSERT_FALSE(proposed) << answer;
    EXPECT_THAT(proposed.error().message, AllOf(HasSubstr("Optuna's process answered "),
                                                HasSubstr(answer), Not(HasSubstr("\n"))));
  }
  EXPECT_THAT(Answer("echo 'a warning'").error().message, HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace pinion::harness
