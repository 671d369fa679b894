#include "engine/exec/step_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

StepInput Example() {
  StepInput input;
  input.tokens = {11, 12, 13, 14};
  input.types = {0, 1, 1, 0};
  input.slices = {{0, 3, 30, {{7, 3, 9}, {-1, 8, 2}}, 2}, {3, 1, 0, {{4}, {4}}, 5, 8, 9}};
  input.wanted = {{1, RowUse::kRating, 0, false, {}, 13, 5},
                  {2, RowUse::kToken, 77, true, {12, 13}}};
  input.ended = {3, 77};
  SamplingParams params;
  params.temperature = 0.5;
  params.bad_words_ids = {{1, 2}, {3}};
  input.begun = {{77, params, 20261125, {2, 6}, {11, 12, 13}}};
  input.parts = 3;
  input.hands_over = true;
  return input;
}

TEST(StepWire, BringsEveryField) {
  const StepInput sent = Example();
  const auto got = DecodeStep(Encode(sent));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->tokens, sent.tokens);
  EXPECT_EQ(got->types, sent.types);
  EXPECT_EQ(got->ended, sent.ended);
  EXPECT_EQ(got->parts, 3u) << "all processes cut alike";
  EXPECT_TRUE(got->hands_over);
  ASSERT_EQ(got->slices.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const StepInput::Slice &to = got->slices[i], &from = sent.slices[i];
    EXPECT_EQ(to.first_row, from.first_row);
    EXPECT_EQ(to.rows, from.rows);
    EXPECT_EQ(to.first_position, from.first_position);
    EXPECT_EQ(to.block_tables, from.block_tables);
    EXPECT_EQ(to.place, from.place);
    EXPECT_EQ(to.begins_from, from.begins_from);
    EXPECT_EQ(to.keeps_in, from.keeps_in);
  }
  ASSERT_EQ(got->wanted.size(), 2u);
  EXPECT_EQ(got->wanted[0].row, 1);
  EXPECT_EQ(got->wanted[0].use, RowUse::kRating);
  EXPECT_EQ(got->wanted[0].given, 13);
  EXPECT_EQ(got->wanted[0].best, 5);
  EXPECT_FALSE(got->wanted[0].constrained);
  EXPECT_EQ(got->wanted[1].sequence, 77u);
  EXPECT_TRUE(got->wanted[1].constrained);
  EXPECT_THAT(got->wanted[1].jumped, ElementsAre(12, 13));
  ASSERT_EQ(got->begun.size(), 1u);
  EXPECT_EQ(got->begun[0].sequence, 77u);
  EXPECT_EQ(got->begun[0].seed, 20261125u);
  EXPECT_EQ(got->begun[0].params.temperature, 0.5);
  EXPECT_THAT(got->begun[0].params.bad_words_ids, ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
  EXPECT_THAT(got->begun[0].eos_ids, ElementsAre(2, 6));
  EXPECT_THAT(got->begun[0].prompt, ElementsAre(11, 12, 13));
}

TEST(StepWire, AStepThatIsCutOrTooLongIsRefused) {
  const std::string whole = Encode(Example());
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(DecodeStep(whole.substr(0, length))) << length;
  EXPECT_FALSE(DecodeStep(whole + '\0'));
  const auto empty = DecodeStep(Encode({}));
  ASSERT_TRUE(empty);
  EXPECT_THAT(empty->tokens, IsEmpty());
}

}  // namespace
}  // namespace pinion
