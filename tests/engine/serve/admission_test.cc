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
  auto first = admission.Arrive(), second = admission.Arrive();
  ASSERT_TRUE(first && second);
  const auto third = admission.Arrive();
  ASSERT_FALSE(third);
  EXPECT_STREQ(third.error().reason, "max_num_queued_reqs");
  EXPECT_THAT(third.error().message, HasSubstr("2 choices wait or run, of 2"));
  { const auto gone = std::move(*first); }
  EXPECT_EQ(admission.choices(), 1u);
  EXPECT_TRUE(admission.Arrive());
}

TEST(Admission, AChoiceIsASlot) {
  Admission admission(Limits(4, 100));
  auto first = admission.Arrive(), second = admission.Arrive();
  ASSERT_TRUE(admission.Admit(*first, 3, 9));
  EXPECT_EQ(admission.choices(), 4u);
  EXPECT_FALSE(admission.Admit(*second, 2, 1));
  EXPECT_EQ(admission.choices(), 4u);  // as before
  first->ChoiceEnded();
  EXPECT_TRUE(admission.Admit(*second, 2, 1));
  EXPECT_EQ(admission.choices(), 4u);
}

TEST(Admission, FreesTokensAtTheFirstToken) {
  Admission admission(Limits(10, 100));
  auto first = admission.Arrive(), second = admission.Arrive();
  ASSERT_TRUE(admission.Admit(*first, 2, 80));
  const auto refused = admission.Admit(*second, 1, 21);
  ASSERT_FALSE(refused);
  EXPECT_STREQ(refused.error().reason, "max_num_queued_tokens");
  first->FirstToken(40);
  EXPECT_EQ(admission.tokens(), 40u);
  EXPECT_TRUE(admission.Admit(*second, 1, 21));
  first->FirstToken(40);
  first->FirstToken(40);  // never below nothing
  EXPECT_EQ(admission.tokens(), 21u);
}

TEST(Admission, TakesAnyRequestThatFindsNothingElse) {
  Admission admission(Limits(1, 100));
  auto only = admission.Arrive();
  ASSERT_TRUE(only);
  EXPECT_TRUE(admission.Admit(*only, 8, 5000));
  EXPECT_FALSE(admission.Arrive());
}

TEST(Admission, AMovedTicketCountsOnce) {
  Admission admission(Limits(10, 100));
  {
    auto ticket = admission.Arrive();
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
