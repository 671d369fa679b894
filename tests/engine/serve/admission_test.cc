#include "engine/serve/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace pinion {
namespace {

using testing::HasSubstr;

FrontLimits Limits(size_t choices, size_t tokens) {
  FrontLimits limits;
  limits.max_num_queued_reqs = choices;
  limits.max_num_queued_tokens = tokens;
  return limits;
}

TEST(Admission, CountsBeforeAnyWork) {
  Admission admission(Limits(2, 100));
  auto first = admission.Arrive("a"), second = admission.Arrive("b");
  ASSERT_TRUE(first && second);
  const auto third = admission.Arrive("c");
  ASSERT_FALSE(third);
  EXPECT_STREQ(third.error().reason, "max_num_queued_reqs");
  EXPECT_THAT(third.error().message, HasSubstr("2 choices wait or run, of 2"));
  { const auto gone = std::move(*first); }
  EXPECT_EQ(admission.choices(), 1u);
  EXPECT_TRUE(admission.Arrive("c"));
}

TEST(Admission, AChoiceIsASlot) {
  Admission admission(Limits(4, 100));
  auto first = admission.Arrive("a"), second = admission.Arrive("b");
  ASSERT_TRUE(admission.Admit(*first, 3, 9));
  EXPECT_EQ(admission.choices(), 4u);
  EXPECT_FALSE(admission.Admit(*second, 3, 1));
  EXPECT_EQ(admission.choices(), 4u);  // as before
  first->ChoiceEnded();
  first->ChoiceEnded();
  EXPECT_TRUE(admission.Admit(*second, 3, 1));
  EXPECT_EQ(admission.choices(), 4u);
}

TEST(Admission, FreesTokensAtTheFirstToken) {
  Admission admission(Limits(10, 160));
  auto first = admission.Arrive("a"), second = admission.Arrive("b");
  ASSERT_TRUE(admission.Admit(*first, 2, 80));
  const auto refused = admission.Admit(*second, 1, 81);
  ASSERT_FALSE(refused);
  EXPECT_STREQ(refused.error().reason, "max_num_queued_tokens");
  first->FirstToken(40);
  EXPECT_EQ(admission.tokens(), 40u);
  EXPECT_TRUE(admission.Admit(*second, 1, 81));
  first->FirstToken(40);
  first->FirstToken(40);  // never below nothing
  EXPECT_EQ(admission.tokens(), 81u);
}

TEST(Admission, TakesAnyRequestThatFindsNothingElse) {
  Admission admission(Limits(1, 100));
  auto only = admission.Arrive("a");
  ASSERT_TRUE(only);
  EXPECT_TRUE(admission.Admit(*only, 8, 5000));
  EXPECT_FALSE(admission.Arrive("b"));
}

TEST(Admission, OneClientLeavesTheOthersHalf) {
  Admission admission(Limits(4, 100));
  auto first = admission.Arrive("a"), second = admission.Arrive("a");
  ASSERT_TRUE(first && second);
  const auto third = admission.Arrive("a");
  ASSERT_FALSE(third);
  EXPECT_STREQ(third.error().reason, "max_num_queued_reqs");
  EXPECT_THAT(third.error().message, HasSubstr("2 choices that wait or run, of 2 for one client"));
  EXPECT_FALSE(admission.Admit(*second, 2, 1));
  ASSERT_TRUE(admission.Admit(*first, 1, 40));
  const auto refused = admission.Admit(*second, 1, 11);
  ASSERT_FALSE(refused);
  EXPECT_STREQ(refused.error().reason, "max_num_queued_tokens");
  EXPECT_THAT(refused.error().message, HasSubstr("40 prompt tokens of this client wait"));
  auto other = admission.Arrive("b");
  ASSERT_TRUE(other);
  EXPECT_TRUE(admission.Admit(*other, 2, 50));
}

// Memory of a lone request beyond its client's half is not held against other clients.
TEST(Admission, AHugeRequestLeavesTheOthersHalf) {
  Admission admission(Limits(4, 100));
  auto huge = admission.Arrive("a");
  ASSERT_TRUE(admission.Admit(*huge, 9, 900));
  EXPECT_FALSE(admission.Arrive("a"));
  auto other = admission.Arrive("b");
  ASSERT_TRUE(other);
  EXPECT_TRUE(admission.Admit(*other, 2, 50));
  EXPECT_FALSE(admission.Arrive("c"));
  for (int i = 0; i < 8; ++i) huge->ChoiceEnded();
  EXPECT_TRUE(admission.Arrive("c"));
}

TEST(Admission, AMovedTicketCountsOnce) {
  Admission admission(Limits(10, 100));
  {
    auto ticket = admission.Arrive("a");
    ASSERT_TRUE(admission.Admit(*ticket, 3, 30));
    std::optional<Admission::Ticket> kept(std::move(*ticket));
    Admission::Ticket again(std::move(*kept));
    kept.reset();
    EXPECT_EQ(admission.choices(), 3u);
  }
  EXPECT_EQ(admission.choices(), 0u);
  EXPECT_EQ(admission.tokens(), 0u);
}

}  // namespace
}  // namespace pinion
