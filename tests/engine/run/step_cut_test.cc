#include "engine/run/step_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace pinion {
namespace {

using ::testing::HasSubstr;

// A step takes fixed + rows x each, in all stages together.
std::vector<StepSample> Samples(double fixed, double each) {
  std::vector<StepSample> samples;
  for (const size_t rows : {1, 8, 16, 32, 64})
    samples.push_back({rows, fixed + each * static_cast<double>(rows)});
  return samples;
}

double StepSeconds(double fixed, double each, size_t stages, size_t rows, size_t parts) {
  const size_t largest = (rows + parts - 1) / parts;
  return static_cast<double>(parts + stages - 1) * (fixed + each * static_cast<double>(largest));
}

TEST(StepCut, OneStageComputesStepsWhole) {
  for (const size_t rows : {1, 64, 2048}) EXPECT_EQ(StepCut().Parts(rows), 1u);
}

TEST(StepCut, APartThatReadsAllWeightsForNothingIsNotMade) {
  for (const size_t rows : {0, 1, 2, 16, 64, 255})
    EXPECT_EQ(StepCut(2, Samples(1, 0)).Parts(rows), 1u) << rows;
}

TEST(StepCut, RowsThatTakeTheTimeAreSharedAmongParts) {
  // Parts cost nothing: all four of each stage, as far as there are rows.
  EXPECT_EQ(StepCut(2, Samples(0, 1)).Parts(64), 8u);
  EXPECT_EQ(StepCut(2, Samples(0, 1)).Parts(2048), 8u);
  EXPECT_EQ(StepCut(3, Samples(0, 1)).Parts(3), 3u);
  EXPECT_EQ(StepCut(2, Samples(0, 1)).Parts(1), 1u);
}

// The time (p + S - 1) (a + b n / p) is least at p = sqrt((S - 1) b n / a).
TEST(StepCut, NoOtherCutIsMuchFaster) {
  for (const double fixed : {1, 6, 20, 100})
    for (const size_t stages : {2, 3, 4})
      for (const size_t rows : {2, 16, 64, 128, 250}) {
        const size_t chosen = StepCut(stages, Samples(fixed, 1)).Parts(rows);
        const double seconds = StepSeconds(fixed, 1, stages, rows, chosen);
        const double whole = StepSeconds(fixed, 1, stages, rows, 1);
        if (chosen > 1) {
          EXPECT_LE(seconds, 0.96 * whole) << "a part must be worth it";
        }
        for (size_t parts = 2; parts <= std::min(rows, 4 * stages); ++parts)
          EXPECT_LE(chosen == 1 ? 0.949 * whole : 0.99 * seconds,
                    StepSeconds(fixed, 1, stages, rows, parts))
              << fixed << " " << stages << " " << rows << " " << parts;
      }
}

// Up to 16 rows weights are read for longer than they are multiplied, so that a smaller part is no
// shorter; from there on each row takes as long as the next.
TEST(StepCut, PartsAreNotSmallerThanTheRowsThatReadingHides) {
  const StepCut cut(2, {{1, 16}, {8, 16}, {16, 16}, {32, 32}, {64, 64}});
  EXPECT_EQ(cut.Parts(16), 1u);
  EXPECT_EQ(cut.Parts(64), 4u);
}

TEST(StepCut, ASampleThatWasDisturbedDoesNotCount) {
  const StepCut cut(2, {{1, 900}, {8, 8}, {16, 16}, {32, 32}, {64, 64}});
  EXPECT_EQ(cut.Parts(64), 8u);
  EXPECT_THAT(cut.Describe(), HasSubstr("8 rows 8000 ms"));
  EXPECT_THAT(cut.Describe(), HasSubstr("64 rows into 8"));
}

// For any samples: a disturbed one may hide the cost of rows.
TEST(StepCut, LongStepsAreCutInAnyCase) {
  for (const StepCut& cut :
       {StepCut(2, Samples(1, 0)), StepCut(2, {{1, 1}, {8, 8}, {16, 16}, {32, 64}, {64, 64}})}) {
    EXPECT_GE(cut.Parts(256), 2u);
    EXPECT_GE(cut.Parts(600), 4u);
    EXPECT_EQ(cut.Parts(2048), 8u);
  }
}

TEST(StepCut, TellsTheTimeThatStepsAddToThoseInFlight) {
  const StepCut cut(2, {{1, 16, 1}, {64, 64, 64}});
  const std::vector<StepSample> added = cut.AddedSamples(2);
  ASSERT_EQ(added.size(), 2u);
  EXPECT_EQ(added[0].seconds, 8);
  EXPECT_EQ(added[1].seconds, 32);
  EXPECT_EQ(added[1].rows, 64u);
  EXPECT_EQ(added[1].wanted, 64u);
  EXPECT_EQ(cut.AddedSamples(1)[1].seconds, 64) << "each alone in the pipeline";
  EXPECT_TRUE(StepCut().AddedSamples(1).empty());
}

}  // namespace
}  // namespace pinion
