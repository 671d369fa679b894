// The engine's loop on a device that is sent bytes.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/engine/comm/thread_world.h"
#include "tests/engine/run/bytes_device.h"

namespace pinion {
namespace {

TEST(Devices, ANameThatIsNotOneOfTheirsIsRefused) {
  EngineOptions options = OnBytes();
  options.device = "abacus";
  const auto refused = StartModel(options, kDevices);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_EQ(refused.error().message, "--device 'abacus' is unknown; use one of auto, other, bytes");
}

TEST(Devices, NeedTheMemoryOfTheirOwnProcesssRanks) {
  EngineOptions options = OnBytes();
  options.pipeline_parallel = 2;
  const auto all = NeedsFor(options, PlanModel(options).value()).value();
  ASSERT_EQ(all.size(), 2u);
  ASSERT_NE(all[0].weights, all[1].weights);
  testing::ThreadWorld(2).Run([&](Communicator& world) {
    PlannedModel planned = PlanModel(options).value();
    const auto decoder = DecoderOptionsFor(options, planned.formats).value();
    StartedModel model;
    model.options = options;
    model.files.spec = planned.spec;
    EXPECT_EQ(NeedsHere(model, decoder).size(), 2u) << "a process alone has all";
    model.world = &world;
    const auto here = NeedsHere(model, decoder);
    ASSERT_EQ(here.size(), 1u);
    EXPECT_EQ(here[0].weights, all[world.process()].weights);
    // A stage that sends its hidden states needs them once, not for each step in flight.
    const uint64_t hidden = decoder.max_rows * 64 * sizeof(float);
    const bool last = world.process() == 0;
    EXPECT_EQ(here[0].workspace, last ? all[0].workspace + hidden : all[1].workspace - hidden);
  });
}

// A block's bytes are all that the cache's size takes from its layout.
TEST(Devices, SayHowLargeABlockIsWithoutTheCpusLayout) {
  RankNeeds needs;
  needs.kv.page = 1000;
  EXPECT_EQ(SizeKv({needs}, OnBytes(), 96, 2 * 12 * 1000).value(), 12u);
}

TEST(Devices, SizeTheCacheByTheirOwnFreeMemory) {
  EXPECT_EQ(OnDevice(12)->info().blocks, 12u);
  EXPECT_EQ(OnDevice(20)->info().blocks, 20u);
  EXPECT_EQ(OnDevice(20)->info().isa, "bytes");
}

class StepsOfADevice : public ::testing::TestWithParam<size_t> {};  // in flight

// Few blocks: sequences are preempted and computed anew, and find prefixes of others.
TEST_P(StepsOfADevice, ThatIsSentBytesAnswerAsIfEachRequestWereAlone) {
  const auto engine = OnDevice(12, GetParam());
  const BytesExecutor& device = *g_executor;
  std::mt19937 rng(20261125);
  std::map<uint64_t, std::vector<int32_t>> tokens;  // prompt, then output
  std::map<uint64_t, size_t> wanted;
  for (uint64_t id = 1; id <= 20; ++id) {
    Request request;
    request.id = id;
    for (int32_t i = 0; i < 16 * static_cast<int32_t>(id % 3); ++i)
      request.prompt_ids.push_back(7 + i);
    for (uint32_t i = 0; i < 1 + rng() % 20; ++i)
      request.prompt_ids.push_back(static_cast<int32_t>(3 + rng() % 400));
    request.params.max_tokens = static_cast<int>(10 + rng() % 20);
    request.params.ignore_eos = true;
    request.params.seed = 1000 + id;
    wanted[id] = request.prompt_ids.size() + static_cast<size_t>(request.params.max_tokens);
    tokens[id] = request.prompt_ids;
    ASSERT_TRUE(engine->Add(std::move(request)));
  }
  std::vector<TokenEvent> events;
  while (!engine->idle()) {
    events.clear();
    engine->Step(events);
    for (const auto& [sequence, seed] : device.sampling_) EXPECT_EQ(seed, 1000 + sequence);
    EXPECT_LE(engine->stats().scheduler.running, 6u);
    for (const TokenEvent& event : events) {
      std::vector<int32_t>& all = tokens[event.request];
      ASSERT_TRUE(event.has_token);
      ASSERT_EQ(event.token.id, NextToken(all)) << event.request << " at " << all.size();
      all.push_back(event.token.id);
    }
  }
  for (const auto& [id, length] : wanted) EXPECT_EQ(tokens[id].size(), length) << id;
  EXPECT_GT(engine->stats().scheduler.preemptions, 0u);
  EXPECT_GT(engine->stats().kv.prefix_hit_tokens, 0u);
}

INSTANTIATE_TEST_SUITE_P(ExecutorSeam, StepsOfADevice, ::testing::Values(1, 2, 3));

TEST(ExecutorSeam, AStepBeginsBeforeTheOneBeforeItEndsIfSequencesAreLeft) {
  const auto engine = OnDevice(20, 2);
  g_executor->calls_.clear();  // of the start
  for (uint64_t id = 1; id <= 4; ++id) AddTo(*engine, id, 6);
  std::vector<TokenEvent> events;
  while (!engine->idle()) engine->Step(events);
  EXPECT_EQ(events.size(), 24u);
  // All prompts, then five steps of each half of the sequences.
  EXPECT_EQ(g_executor->calls_, "BFBBFBFBFBFBFBFBFBFBFF");
  g_executor->calls_.clear();
  AddTo(*engine, 5, 4);
  while (!engine->idle()) engine->Step(events);
  EXPECT_EQ(g_executor->calls_, "BFBFBFBF") << "one alone waits for its token";
}

TEST(ExecutorSeam, ASequenceAbortedInFlightEndsOnceWithoutAnotherToken) {
  const auto engine = OnDevice(20, 2);
  for (uint64_t id = 1; id <= 4; ++id) AddTo(*engine, id, 6);
  std::vector<TokenEvent> events;
  engine->Step(events);
  engine->Step(events);  // one half has its second token, the other is in flight
  events.clear();
  for (uint64_t id = 1; id <= 4; ++id) engine->Abort(id);
  EXPECT_FALSE(engine->idle());
  while (!engine->idle()) engine->Step(events);
  std::set<uint64_t> ended;
  for (const TokenEvent& event : events) {
    EXPECT_FALSE(event.has_token);
    EXPECT_EQ(event.finish, FinishReason::kAborted);
    EXPECT_TRUE(ended.insert(event.request).second) << event.request;
  }
  EXPECT_EQ(ended.size(), 4u);
  EXPECT_EQ(engine->stats().blocks_used, 0u);
  AddTo(*engine, 9, 1);
  engine->Step(events);
  EXPECT_EQ(g_executor->sampling_.size(), 1u) << "9 alone";
}

TEST(ExecutorSeam, AnEngineMayEndWithStepsInFlight) {
  auto engine = OnDevice(20, 2);
  for (uint64_t id = 1; id <= 4; ++id) AddTo(*engine, id, 6);
  std::vector<TokenEvent> events;
  for (int step = 0; step < 3; ++step) engine->Step(events);
  EXPECT_TRUE(g_executor->calls_.ends_with("BF"));
  engine.reset();  // its executor looks for those that are left
}

TEST(ExecutorSeam, TheExecutorIsToldOfEverySequencesEndEvenIfItIsAborted) {
  const auto engine = OnDevice(12);
  const BytesExecutor& device = *g_executor;
  const auto add = [&](uint64_t id, int most) {
    Request request;
    request.id = id;
    request.prompt_ids = {5, 6, 7};
    request.params.max_tokens = most;
    request.params.ignore_eos = true;
    ASSERT_TRUE(engine->Add(std::move(request)));
  };
  std::vector<TokenEvent> events;
  add(1, 50);
  add(2, 1);
  engine->Step(events);
  EXPECT_EQ(device.sampling_.size(), 2u);
  engine->Abort(1);
  add(1, 2);  // another request of the same number
  engine->Step(events);
  EXPECT_EQ(device.sampling_.size(), 1u) << "1 has ended and begun, 2 has ended";
  engine->Step(events);
  add(3, 1);
  engine->Step(events);
  EXPECT_EQ(device.sampling_.size(), 1u) << "3 alone";
  add(4, 50);
  engine->Step(events);
  engine->Abort(4);
  engine->Step(events);  // in which there is nothing to compute
  add(4, 1);
  engine->Step(events);
  EXPECT_EQ(device.sampling_.size(), 1u) << "the new 4";
}

}  // namespace
}  // namespace pinion
