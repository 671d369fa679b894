// Findings from the times of steps in a pipeline of stages: the time that a step adds to others in
// a full pipeline, that is one stage's time for it, however full the pipeline was.

#include <gtest/gtest.h>

#include <deque>
#include <tuple>

#include "timed_stages.h"

namespace pinion {
namespace {

class TimesOfStages : public ::testing::TestWithParam<std::tuple<size_t, size_t>> {};

TEST_P(TimesOfStages, AreThoseOfOneHoweverManySequencesFillThePipeline) {
  const auto [stages, decodes] = GetParam();
  TimedBench bench({.steps_in_flight = stages});
  bench.AddDecodes(1, decodes);
  TimedStages pipeline(stages, bench.clock);
  std::deque<size_t> open;  // slices of the steps in flight
  for (int step = 0; step < 40; ++step) {
    while (open.size() < stages) {
      const size_t slices = bench.scheduler.Schedule().size();
      if (slices == 0) break;
      pipeline.Begin(static_cast<double>(slices) * bench.times.row_s);
      open.push_back(slices);
    }
    pipeline.Finish();
    bench.scheduler.Commit(std::vector<int32_t>(open.front(), 7));
    EXPECT_EQ(bench.times.seen.rows, open.front());
    EXPECT_NEAR(bench.times.seen_s, static_cast<double>(open.front()) * bench.times.row_s, 1e-8)
        << "step " << step;
    open.pop_front();
  }
}

INSTANTIATE_TEST_SUITE_P(StagesAndSequences, TimesOfStages,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(1, 2, 3, 4, 8, 12)),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "Stages" +
                                  std::to_string(std::get<1>(info.param)) + "Sequences";
                         });

// Alone in three stages: 64 rows in four parts take six times a part's time, a row thrice its own.
TEST(TimesOfStages, OfAStepInPartsCountThem) {
  TimedBench bench({.steps_in_flight = 3});
  TimedStages pipeline(3, bench.clock);
  bench.Add(1, 64, 4);
  ASSERT_EQ(bench.scheduler.Schedule().size(), 1u);
  bench.scheduler.CutNewest(4);
  pipeline.Begin(64 * bench.times.row_s, 4);
  pipeline.Finish();
  bench.scheduler.Commit({7});
  EXPECT_NEAR(bench.times.seen_s, 64 * bench.times.row_s, 1e-8);
  for (int decode = 0; decode < 3; ++decode) {  // the last has the first step's memory
    ASSERT_EQ(bench.scheduler.Schedule().size(), 1u);
    pipeline.Begin(bench.times.row_s);
    pipeline.Finish();
    bench.scheduler.Commit({7});
    EXPECT_NEAR(bench.times.seen_s, bench.times.row_s, 1e-8) << "in one part";
  }
}

// A bound is for what each of the steps in flight adds.
TEST(TimesOfStages, AloneInThePipelineAreNotOverTheirBound) {
  TimedBench bench({.bound = {0.25, 0.25, 0}, .steps_in_flight = 2});
  TimedStages pipeline(2, bench.clock);
  for (const auto& [slowness, over] : {std::pair(1.0, 0u), std::pair(1.1, 1u)}) {
    bench.Add(1, 48, 1);
    ASSERT_EQ(bench.scheduler.Schedule().size(), 1u);
    pipeline.Begin(0.24 * slowness);
    pipeline.Finish();
    bench.scheduler.Commit({7});
    EXPECT_EQ(bench.scheduler.stats().steps_over_bound, over);
  }
}

}  // namespace
}  // namespace pinion
