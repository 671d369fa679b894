#include "engine/run/step_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/run/step_clock.h"
#include "engine/run/step_cut.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;

// A clock that the steps move.
class StepsClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  void SleepNs(int64_t ns) const override { now_ns += ns; }
  mutable int64_t now_ns = 0;
};

TEST(TimeSamples, TakesTheFasterOfTwoStepsAndFewIfTheyAreLong) {
  StepsClock clock;
  std::vector<size_t> run;
  int64_t ms_of_a_row = 1;
  const auto step = [&](size_t rows) {
    const bool again = !run.empty() && run.back() == rows;
    run.push_back(rows);
    clock.SleepNs(1'000'000 * ms_of_a_row * static_cast<int64_t>(rows) * (again ? 1 : 3));
  };
  const auto samples = TimeSamples(PartSamples(), 2048, step, clock);
  EXPECT_THAT(run, ElementsAre(1, 1, 4, 4, 8, 8, 16, 16, 32, 32, 64, 64));
  ASSERT_EQ(samples.size(), 6u);
  EXPECT_EQ(samples[5].rows, 64u);
  EXPECT_NEAR(samples[5].seconds, 0.064, 1e-9);

  run.clear();
  TimeSamples(PartSamples(), 40, step, clock);
  EXPECT_THAT(run, ElementsAre(1, 1, 4, 4, 8, 8, 16, 16, 32, 32)) << "steps of up to 40 rows";

  run.clear();
  ms_of_a_row = 40;
  TimeSamples(PartSamples(), 2048, step, clock);
  EXPECT_THAT(run, ElementsAre(1, 1, 4, 4, 8, 8, 16)) << "8 rows take 320 ms";
}

// The rows of the steps that are timed if one takes `fixed_ms` and `ms_of_a_row` for each row.
std::vector<size_t> RowsTimed(size_t most_rows, int64_t fixed_ms, int64_t ms_of_a_row) {
  StepsClock clock;
  std::vector<size_t> rows;
  const auto ms = [&](size_t n) { return fixed_ms + static_cast<int64_t>(n) * ms_of_a_row; };
  const auto run = [&](size_t n) { clock.SleepNs(ms(n) * 1'000'000); };
  for (const auto& sample : TimeSamples(FirstSamples(), most_rows, run, clock)) {
    rows.push_back(sample.rows);
    EXPECT_NEAR(sample.seconds, static_cast<double>(ms(sample.rows)) * 1e-3, 1e-9);
  }
  return rows;
}

TEST(TimeSamples, LeavesOutLongSteps) {
  EXPECT_THAT(RowsTimed(2048, 100, 1), ElementsAre(1, 16, 64));
  EXPECT_THAT(RowsTimed(2048, 300, 1), ElementsAre(1, 16)) << "steps of a large model";
  EXPECT_THAT(RowsTimed(40, 100, 1), ElementsAre(1, 16));
  EXPECT_THAT(RowsTimed(7, 100, 1), ElementsAre(1));
}

TEST(TimeSamples, LeavesOutStepsThatFollowFromShorterOnes) {
  EXPECT_THAT(RowsTimed(2048, 59, 1), ElementsAre(1, 16, 64)) << "75 ms over 60";
  EXPECT_THAT(RowsTimed(2048, 58, 1), ElementsAre(1, 16)) << "74 ms over 59: more than a quarter";
}

}  // namespace
}  // namespace pinion
