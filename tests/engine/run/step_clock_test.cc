#include "engine/run/step_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/checkpoint/preset.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;

CostModel CostOf(const char* preset) {
  return {*ReadSpec(*PresetConfig(preset)), kernels::Dtype::kBf16, 1};
}

MeasuredStepTimes Times() { return {CostOf("llama-3.2-1b"), /*tiles=*/false}; }

// A machine that needs so long for each kind of work, whatever MeasuredStepTimes believes.
struct Truth {
  double read_s = 0.1, row_s = 0.004, attention_s = 0.004;

  double Seconds(const StepLoad& load) const {
    const auto rows = static_cast<double>(load.rows);
    return std::max(read_s, rows * row_s) + load.attention * attention_s;
  }
};

StepLoad Prefill(const StepTimes& times, size_t first, size_t rows) {
  StepLoad load;
  times.Add(load, first, rows, false);
  return load;
}

TEST(StepClock, BeginsWithTheFirstStepsAndGoesOnInProportion) {
  MeasuredStepTimes times = Times();
  times.Start({{1, 0.1}, {16, 0.12}, {64, 0.3}});
  const double at_64 = times.Seconds(Prefill(times, 0, 64));
  EXPECT_NEAR(at_64, 0.3, 0.02);
  EXPECT_NEAR(times.Seconds(Prefill(times, 0, 1)), 0.1, 0.01);
  EXPECT_NEAR(times.Seconds(Prefill(times, 0, 640)) / at_64, 10, 1);
  EXPECT_NEAR(times.PrefillSeconds(0, 640) / at_64, 10, 1);
  EXPECT_EQ(times.Seconds({}), 0);
}

TEST(StepClock, CountsTheTokensThatARowSees) {
  MeasuredStepTimes times = Times();
  times.Start({{1, 0.1}, {16, 0.12}, {64, 0.3}});
  EXPECT_GT(times.Seconds(Prefill(times, 8000, 64)), 1.5 * times.Seconds(Prefill(times, 0, 64)));
  // One row that reads all keys costs more than its part of rows that read them together.
  const double one = Prefill(times, 8000, 1).attention;
  EXPECT_GT(one * 64, 1.5 * Prefill(times, 8000, 64).attention);
}

TEST(StepClock, CountsTheHeadAsRows) {
  MeasuredStepTimes times = Times();
  times.Start({{1, 0.1}, {16, 0.12}, {64, 0.3}});
  StepLoad decodes, prompt;
  for (int i = 0; i < 128; ++i) times.Add(decodes, 0, 1, true);
  for (int i = 0; i < 128; ++i) times.Add(prompt, 0, 1, false);
  EXPECT_GT(times.Seconds(decodes), 1.1 * times.Seconds(prompt));
}

TEST(StepClock, LearnsAMachineTwiceAsSlow) {
  MeasuredStepTimes times = Times();
  times.Start({{1, 0.05}, {16, 0.06}, {64, 0.13}});
  const Truth truth;
  std::mt19937 rng(17);
  for (int step = 0; step < 300; ++step) {
    const StepLoad load = Prefill(times, rng() % 4000, 1 + rng() % 200);
    times.Observe(load, truth.Seconds(load));
  }
  double worst = 0;
  for (size_t rows = 16; rows <= 192; rows += 16) {
    const StepLoad load = Prefill(times, 2000, rows);
    worst = std::max(worst, std::abs(times.Seconds(load) / truth.Seconds(load) - 1));
  }
  EXPECT_LT(worst, 0.1);
}

// A long prompt on a machine whose attention is slower than its first steps tell: every step takes
// longer than the one before.
TEST(StepClock, KeepsUpWithAGrowingContext) {
  MeasuredStepTimes times = Times();
  times.Start({{1, 0.05}, {16, 0.06}, {64, 0.26}});
  const Truth truth{.attention_s = 0.012};
  double worst = 0;
  for (size_t first = 0; first < 16'000; first += 64) {
    const StepLoad load = Prefill(times, first, 64);
    const double seen = truth.Seconds(load);
    if (first >= 1000) worst = std::max(worst, seen / times.Seconds(load) - 1);
    times.Observe(load, seen);
  }
  EXPECT_LT(worst, 0.05);
}

// Predictions of unseen steps follow from those that were seen.
// The change that an error of a tenth makes in the prediction of 64 rows behind so many tokens,
// once the clock has seen them often.
double CorrectionOf(size_t first) {
  MeasuredStepTimes times = Times();
  times.Start({{1, 0.1}, {16, 0.12}, {64, 0.3}});
  const StepLoad load = Prefill(times, first, 64);
  for (int i = 0; i < 10; ++i) times.Observe(load, times.Seconds(load));
  const double before = times.Seconds(load);
  times.Observe(load, 1.1 * before);
  return times.Seconds(load) / before - 1;
}

// Behind 8,000 tokens attention takes about half of the time.
TEST(StepClock, CorrectsAStepOfTwoPartsAsMuchAsOneOfOne) {
  EXPECT_NEAR(CorrectionOf(8000), CorrectionOf(0), 0.1 * CorrectionOf(0));
  EXPECT_GT(CorrectionOf(0), 0);
}

TEST(StepClock, CorrectsLongerStepsThanItSaw) {
  MeasuredStepTimes times = Times();
  times.Start({{1, 0.05}, {16, 0.06}, {64, 0.13}});
  const Truth truth;
  for (int step = 0; step < 100; ++step) {
    const StepLoad load = Prefill(times, 0, 64);
    times.Observe(load, truth.Seconds(load));
  }
  const StepLoad longer = Prefill(times, 0, 512);
  EXPECT_NEAR(times.Seconds(longer) / truth.Seconds(longer), 1, 0.15);
}

TEST(StepClock, NeverFallsWithMoreRows) {
  MeasuredStepTimes times = Times();
  times.Start({{1, 0.1}, {16, 0.08}, {64, 0.3}});
  std::mt19937 rng(17);
  for (int step = 0; step < 500; ++step) {
    const StepLoad load = Prefill(times, 0, 1 + rng() % 600);
    times.Observe(load, 0.001 * static_cast<double>(1 + rng() % 1000));
    double before = 0;
    for (size_t rows = 1; rows <= 4096; rows += 1 + rows / 5) {
      const double seconds = times.Seconds(Prefill(times, 0, rows));
      ASSERT_GE(seconds, before) << rows << " rows after step " << step;
      before = seconds;
    }
  }
}

TEST(StepClock, OneOutlierMovesItLittle) {
  MeasuredStepTimes times = Times();
  times.Start({{1, 0.1}, {16, 0.12}, {64, 0.3}});
  const StepLoad load = Prefill(times, 0, 64);
  for (int step = 0; step < 20; ++step) times.Observe(load, 0.3);
  times.Observe(load, 30);
  EXPECT_LE(times.Seconds(load), 0.3 * 1.21);
  EXPECT_LE(times.Margin(), 1.2);
}

TEST(StepClock, PlansWithMargin) {
  MeasuredStepTimes times = Times();
  times.Start({{1, 0.1}, {16, 0.12}, {64, 0.3}});
  EXPECT_EQ(times.Margin(), 1);
  const StepLoad load = Prefill(times, 0, 64);
  for (int step = 0; step < 100; ++step) {
    EXPECT_LE(times.Margin(), 1.5);
    times.Observe(load, times.Seconds(load) * (step % 2 ? 1.2 : 0.8));
  }
  EXPECT_NEAR(times.Margin(), 1.4, 0.02) << "twice the error";
  for (int step = 0; step < 100; ++step) times.Observe(load, times.Seconds(load));
  EXPECT_LT(times.Margin(), 1.01);
  for (int step = 0; step < 100; ++step)
    times.Observe(load, times.Seconds(load) * (step % 2 ? 9 : 0.1));
  EXPECT_EQ(times.Margin(), 1.5);
}

TEST(StepClock, CutsCoarserOnTiles) {
  const MeasuredStepTimes vectors = Times(), tiles(CostOf("llama-3.2-1b"), true);
  EXPECT_EQ(vectors.granule(), 16u);
  EXPECT_EQ(tiles.granule(), 32u);
}

TEST(StepClock, FindsTheRowsOfFullSpeed) {
  MeasuredStepTimes times = Times();
  times.Start({{1, 0.1}, {16, 0.11}, {64, 0.25}});
  EXPECT_EQ(times.full_speed_rows(), 64u) << "16 rows have 57 % of its speed";
  times.Start({{1, 0.1}, {16, 0.16}, {64, 0.6}});
  EXPECT_EQ(times.full_speed_rows(), 16u) << "94 %";
  MeasuredStepTimes tiles(CostOf("llama-3.2-1b"), true);
  tiles.Start({{1, 0.1}, {16, 0.16}, {64, 0.6}});
  EXPECT_EQ(tiles.full_speed_rows(), 32u) << "the least that is cut off";
  times.Start({{1, 0.001}, {16, 0.02}});
  EXPECT_EQ(times.full_speed_rows(), 16u) << "one row is faster, but no chunk";
  tiles.Start({{1, 0.001}, {16, 0.02}});
  EXPECT_EQ(tiles.full_speed_rows(), 32u);
}

// Steps of a mixture of which reading all experts takes `read_s`.
TEST(StepClock, FindsTheRowsForWhichExpertsAreReadOften) {
  const CostModel cost = CostOf("qwen3-30b-a3b");
  MeasuredStepTimes times(cost, false);
  const auto all = static_cast<double>(cost.ExpectedExperts(1 << 20).weight_bytes);
  const auto seconds = [&](size_t rows) {
    return 0.3 * static_cast<double>(cost.ExpectedExperts(rows).weight_bytes) / all +
           0.004 * static_cast<double>(rows);
  };
  times.Start({{1, seconds(1)}, {16, seconds(16)}});
  EXPECT_GE(times.full_speed_rows(), 128u) << "of which none was ever computed";
  for (int step = 0; step < 50; ++step) {
    const StepLoad load = Prefill(times, 0, times.full_speed_rows());
    times.Observe(load, seconds(load.rows));
  }
  const auto rows = static_cast<double>(times.full_speed_rows());
  EXPECT_GE(rows / seconds(times.full_speed_rows()), 0.6 / 0.004) << "of the products' own speed";
  EXPECT_NEAR(times.PrefillSeconds(0, 2048) / (2048 * seconds(times.full_speed_rows()) / rows), 1,
              0.15);
}

// The head's work for a row is the same for each row that is wanted.
TEST(StepClock, BeginsWithStepsOfWhichAllRowsAreWanted) {
  const auto rows_of = [](size_t wanted) {  // as which the step counts
    MeasuredStepTimes times = Times();
    times.Start({{64, 0.3, wanted}});
    return 0.3 / times.ToJson().Find("attention_seconds")->number();
  };
  const double head_rows = rows_of(1) - 64;
  EXPECT_GT(head_rows, 0.1);
  EXPECT_NEAR(rows_of(64), 64 + 64 * head_rows, 1e-6);
}

TEST(BoundOfSteps, IsThereIfOthersMayWait) {
  EngineOptions options;
  EXPECT_EQ(BoundOfSteps(options).most_s, 0) << "an offline run";
  options.max_step_ms = 250;
  EXPECT_EQ(BoundOfSteps(options).least_s, 0.25);
  EXPECT_EQ(BoundOfSteps(options).most_s, 0.25);
  options.max_step_ms.reset();
  options.has_frontend = true;
  EXPECT_EQ(BoundOfSteps(options).least_s, 0.1);
  EXPECT_EQ(BoundOfSteps(options).most_s, 0.5);
  EXPECT_EQ(BoundOfSteps(options).per_decode, 8);
  EXPECT_EQ(BoundOfSteps(options, 2).most_s, 0.25) << "a sequence waits for two steps";
  EXPECT_EQ(BoundOfSteps(options, 2).per_decode, 8);
  EXPECT_EQ(BoundOfSteps(options, 2).least_s, 0.05);
  EXPECT_EQ(BoundOfSteps(options, 2).slow_s, 0.5);
  EXPECT_EQ(BoundOfSteps(options, 2).slow_alone_s, 1);
  options.max_step_ms = 250;
  EXPECT_EQ(BoundOfSteps(options, 2).least_s, 0.125) << "as it does for what it is given";
  EXPECT_EQ(BoundOfSteps(options, 2).most_s, 0.125);
  options.max_step_ms = 0;
  EXPECT_EQ(BoundOfSteps(options).most_s, 0);
}

}  // namespace
}  // namespace pinion
