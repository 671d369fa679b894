#include "harness/trial/line_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

LineProcess Child(const char* script) {
  Process::Options options;
  options.arguments = {"sh", "-c", script};
  auto child = LineProcess::Start(options, "the child");
  EXPECT_TRUE(child) << child.error().message;
  return std::move(*child);
}

std::string NoReason() { return ""; }

TEST(LineProcess, AnswersALineForEachLine) {
  LineProcess child = Child("while read -r line; do echo \"got $line\"; done");
  EXPECT_EQ(child.Ask("one", NoReason), "got one");
  EXPECT_EQ(child.Ask("two", NoReason), "got two");
}

TEST(LineProcess, TellsHowAChildEnded) {
  LineProcess child = Child("read -r line; exit 7");
  const auto answer = child.Ask("one", NoReason);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message, "the child ended with exit code 7");
}

TEST(LineProcess, AChildThatNeverEndsItsLineIsEnded) {
  LineProcess child = Child("head -c 70000000 /dev/zero; sleep 600");
  const auto answer = child.Ask("one", NoReason);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message,
            "the child answered more than 64 MiB without the end of a line");
}

TEST(LineProcess, AChildThatDoesNotAnswerOrDoesNotReadIsEndedForAReason) {
  const std::string more_than_a_socket_holds(16 << 20, 'x');
  for (const std::string& line : {std::string("one"), more_than_a_socket_holds}) {
    LineProcess child = Child("sleep 600");
    int asked = 0;
    const auto answer = child.Ask(line, [&] { return ++asked < 2 ? "" : "it is late"; });
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().message, "it is late");
  }
}

}  // namespace
}  // namespace pinion::harness
