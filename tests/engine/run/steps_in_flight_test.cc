// The engine's loop with several steps in flight, on a device whose stages take as long as a test
// says.

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/engine/run/bytes_device.h"
#include "tests/engine/sched/timed_stages.h"

namespace pinion {
namespace {

void RunUntilIdle(Engine& engine) {
  std::vector<TokenEvent> events;
  while (!engine.idle()) engine.Step(events);
}

// An engine of two stages, on a clock that its steps move. Its options bound steps, and its start
// has measured that a row takes as long as the next, so that prompts are cut into many parts.
struct TwoStages {
  explicit TwoStages(size_t steps_in_flight = 2, EngineOptions options = OnBytes()) {
    options.pipeline_parallel = 2;
    options.max_step_ms = 1000;
    StartedModel model = StartOnDevice(options, 160, steps_in_flight);
    model.clock = &clock;
    model.cut = StepCut(2, {{1, 0.02}, {16, 0.32}, {64, 1.28}});
    model.step_times->Start(model.cut.AddedSamples(steps_in_flight));
    g_executor->on_finish_ = [this] { stages.Finish(); };
    truth = std::make_unique<MeasuredStepTimes>(*model.step_times);
    g_executor->on_begin_ = [this](const StepInput& input) {
      stages.Begin(truth->Seconds(LoadOf(input)), input.parts);
      parts.emplace_back(input.tokens.size(), input.parts);
    };
    engine = MakeEngine(std::move(model), {}).value();
  }

  StepLoad LoadOf(const StepInput& input) const {
    StepLoad load;
    for (const StepInput::Slice& slice : input.slices) {
      const bool samples =
          std::any_of(input.wanted.begin(), input.wanted.end(), [&](const WantedRow& wanted) {
            return static_cast<size_t>(wanted.row) == slice.first_row + slice.rows - 1;
          });
      truth->Add(load, slice.first_position, slice.rows, samples);
    }
    return load;
  }
  double Margin() const {
    return engine->ServerInfo().Find("step_times")->Find("margin")->number();
  }

  HandClock clock;
  TimedStages stages{2, clock};
  std::unique_ptr<MeasuredStepTimes> truth;      // as the start measured it, and so steps are
  std::vector<std::pair<size_t, size_t>> parts;  // of each step: rows, and parts
  std::unique_ptr<Engine> engine;
};

TEST(EngineStepsInFlight, AStepsWorkBeginsAtTheEndOfTheOneBefore) {
  uint64_t bytes[2] = {};
  for (const uint64_t experts : {0, 1000}) {  // bytes of theirs that each step reads
    TwoStages two;
    g_executor->on_finish_ = [&] {
      two.stages.Finish();
      g_executor->expert_bytes_ += experts;
    };
    const double began_s = two.clock.seconds();
    for (uint64_t id = 1; id <= 4; ++id) AddTo(*two.engine, id, 6);
    RunUntilIdle(*two.engine);
    const EngineStats stats = two.engine->stats();
    EXPECT_EQ(stats.prefill.steps, 1u);
    EXPECT_EQ(stats.decode.steps, 10u);
    EXPECT_NEAR(stats.prefill.seconds + stats.decode.seconds, two.clock.seconds() - began_s, 1e-8);
    bytes[experts > 0] = stats.prefill.least.weight_bytes + stats.decode.least.weight_bytes;
  }
  EXPECT_EQ(bytes[1] - bytes[0], 11u * 1000);
}

TEST(EngineStepsInFlight, AStepIsCutIntoPartsOnlyIfNoOtherKeepsTheStagesBusy) {
  TwoStages two;
  for (uint64_t id = 1; id <= 4; ++id) AddTo(*two.engine, id, 6);
  RunUntilIdle(*two.engine);
  ASSERT_EQ(two.parts.size(), 11u);
  EXPECT_GT(two.parts[0].second, 1u) << "prompts";
  for (size_t step = 1; step < two.parts.size(); ++step)
    EXPECT_EQ(two.parts[step], std::pair(size_t{2}, size_t{1})) << step;
  TwoStages apart(/*steps_in_flight=*/1);
  for (uint64_t id = 1; id <= 4; ++id) AddTo(*apart.engine, id, 6);
  RunUntilIdle(*apart.engine);
  EXPECT_EQ(apart.parts.back().first, 4u);
  EXPECT_GT(apart.parts.back().second, 1u);
}

// Prompts and decodes that have both stages for themselves, and then as many as fill them: the
// clock knew before how long they take, so nothing may change that.
TEST(EngineStepsInFlight, StepsAloneTeachTheClockTheTimeThatTheyAddToAFullPipeline) {
  TwoStages two;
  for (uint64_t id = 1; id <= 10; ++id) {
    AddTo(*two.engine, id, 8);
    RunUntilIdle(*two.engine);
  }
  EXPECT_NEAR(two.Margin(), 1, 1e-4);
  for (uint64_t id = 11; id <= 14; ++id) AddTo(*two.engine, id, 8);
  RunUntilIdle(*two.engine);
  EXPECT_NEAR(two.Margin(), 1, 1e-2);
}

// With --role a step has the stages of a pipeline for itself.
TEST(EngineStepsInFlight, TheStartTellsTheClockTheTimeThatStepsAddIfAsManyAreInFlight) {
  EngineOptions options = OnBytes();
  options.pipeline_parallel = 2;
  options.max_step_ms = 1000;
  for (const size_t steps : {1, 2}) {
    const StartedModel model = StartOnDevice(options, 40, steps);
    MeasuredStepTimes times = *model.step_times;
    times.Start(model.cut.AddedSamples(steps));
    EXPECT_EQ(times.ToJson().Dump(), model.step_times->ToJson().Dump()) << steps;
  }
}

TEST(EngineStepsInFlight, EachHasItsShareOfTheTimeForWhichASequenceMayWait) {
  for (const size_t steps : {1, 2}) {
    TwoStages two(steps);
    AddTo(*two.engine, 1, 1);
    RunUntilIdle(*two.engine);
    EXPECT_EQ(two.engine->stats().scheduler.bound_s, 1.0 / static_cast<double>(steps));
  }
}

// Three chunks, of which two are in flight when it is aborted.
TEST(EngineStepsInFlight, NoRowOfAnAbortedSequenceIsHandedOn) {
  const auto engine = OnDevice(20, 2);
  size_t rows = 0;
  engine->SetScoreSink([&](uint64_t, size_t, const float*, size_t) { ++rows; });
  Request request;
  request.id = 1;
  request.score = true;
  request.prompt_ids.assign(60, 7);
  ASSERT_TRUE(engine->Add(std::move(request)));
  std::vector<TokenEvent> events;
  engine->Step(events);
  EXPECT_EQ(rows, 24u);
  engine->Abort(1);
  RunUntilIdle(*engine);
  EXPECT_EQ(rows, 24u);
}

}  // namespace
}  // namespace pinion
