// A device that is no model and has no teams, started by a row of the table of devices: everything
// that a step needs must come with its input.
//
// It shows the calls, and is no complete executor: it ignores states (places, and copies of them),
// masks, ratings, tokens that were jumped over, and all tables of blocks but the first; its model
// has none of them.

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>

#include "engine/exec/step_wire.h"
#include "engine/run/device.h"
#include "tests/engine/comm/thread_world.h"

namespace pinion {
namespace {

constexpr size_t kDeviceBlock = 16;
constexpr int32_t kDeviceTokens = 500;

// The token that follows others: it depends on each of them and its place.
int32_t NextToken(const std::vector<int32_t>& tokens) {
  uint32_t sum = 17;
  for (const int32_t token : tokens) sum = sum * 31 + static_cast<uint32_t>(token);
  return static_cast<int32_t>(3 + sum % (kDeviceTokens - 3));
}

// A device with memory of its own: it is sent bytes, and keeps tokens where keys and values would
// lie.
class BytesExecutor final : public Executor {
 public:
  explicit BytesExecutor(size_t steps_in_flight) : steps_in_flight_(steps_in_flight) {}
  ~BytesExecutor() override { EXPECT_TRUE(open_.empty()); }
  Status AllocateKv(const KvRoom&) override { return {}; }

  void Begin(const StepInput& sent) override {
    open_.push_back(DecodeStep(Encode(sent)).value());
    EXPECT_LE(open_.size(), steps_in_flight_);
    calls_ += 'B';
  }
  StepOutput Finish(StepCaller& caller) override {
    const StepInput input = std::move(open_.front());
    open_.pop_front();
    calls_ += 'F';
    for (const uint64_t sequence : input.ended) EXPECT_EQ(sampling_.erase(sequence), 1u);
    for (const SamplingRequest& begun : input.begun)
      EXPECT_TRUE(sampling_.emplace(begun.sequence, begun.seed).second);
    for (const StepInput::Slice& slice : input.slices) {
      EXPECT_EQ(slice.block_tables.size(), 1u);
      for (size_t i = 0; i < slice.rows; ++i)
        At(slice, slice.first_position + i) = input.tokens[slice.first_row + i];
    }
    StepOutput output;
    output.tokens.resize(input.wanted.size());
    for (size_t i = 0; i < input.wanted.size(); ++i) {
      if (input.wanted[i].use == RowUse::kItself) {  // of the warm-up
        constexpr float kRow[] = {1};
        caller.Take(i, kRow, 1);
        continue;
      }
      EXPECT_TRUE(sampling_.contains(input.wanted[i].sequence));
      output.tokens[i].id = Choose(input, static_cast<size_t>(input.wanted[i].row));
    }
    return output;
  }
  ExecutorMemory memory() const override { return {}; }
  StepReads reads() const override { return {}; }
  size_t steps_in_flight() const override { return steps_in_flight_; }

  std::map<uint64_t, uint64_t> sampling_;  // the seeds of those that sample
  std::string calls_;                      // B: a step has begun, F: the oldest has ended

 private:
  int32_t& At(const StepInput::Slice& slice, size_t position) {
    const int32_t block = slice.block_tables[0].at(position / kDeviceBlock);
    return cache_[{block, position % kDeviceBlock}];
  }
  int32_t Choose(const StepInput& input, size_t row) {
    for (const StepInput::Slice& slice : input.slices) {
      if (row < slice.first_row || row >= slice.first_row + slice.rows) continue;
      std::vector<int32_t> seen;
      for (size_t at = 0; at <= slice.first_position + row - slice.first_row; ++at)
        seen.push_back(At(slice, at));
      return NextToken(seen);
    }
    ADD_FAILURE() << "row " << row << " is in no slice";
    return 0;
  }

  const size_t steps_in_flight_;
  std::deque<StepInput> open_;
  std::map<std::pair<int32_t, size_t>, int32_t> cache_;
};

BytesExecutor* g_executor = nullptr;  // the one that was loaded last

// What another device has to write for a start.
class BytesDevice final : public Device {
 public:
  Status Prepare(StartedModel& model, Stages&) override {
    if (model.world) return Fail(ErrorCode::kUnsupported, "its ranks are all in one process");
    model.info.plan.ranks.resize(static_cast<size_t>(model.options.ranks()));
    model.info.threads = 1;
    model.info.isa = "bytes";
    return {};
  }
  Result<std::vector<RankNeeds>> CheckMemory(StartedModel& model, const DecoderOptions& options,
                                             Stages&) override {
    return NeedsHere(model, options);
  }
  Result<std::unique_ptr<Executor>> Load(StartedModel&, const DecoderOptions&,
                                         std::shared_ptr<const TensorSource>) override {
    auto executor = std::make_unique<BytesExecutor>(steps_in_flight);
    g_executor = executor.get();
    return std::unique_ptr<Executor>(std::move(executor));
  }
  uint64_t FreeForCache(const StartedModel&) override { return free_bytes; }

  static inline uint64_t free_bytes = 0;
  static inline size_t steps_in_flight = 1;
};

constexpr DeviceRow kDevices[] = {
    {"other", [] { return std::unique_ptr<Device>(); }},
    {"bytes", [] { return std::unique_ptr<Device>(new BytesDevice); }},
};

EngineOptions OnBytes() {
  EngineOptions options;
  options.model = "preset:tiny";
  options.device = "bytes";
  options.dtype = "float32";
  options.block_size = kDeviceBlock;
  options.max_num_seqs = 6;
  options.max_num_batched_tokens = 24;
  options.max_model_len = 96;
  return options;
}

// A cache of so many blocks: half of what is free.
std::unique_ptr<Engine> OnDevice(uint64_t blocks, size_t steps_in_flight = 1) {
  BytesDevice::steps_in_flight = steps_in_flight;
  const EngineOptions options = OnBytes();
  const auto needs = NeedsFor(options, PlanModel(options).value()).value();
  BytesDevice::free_bytes = 2 * blocks * LargestBlockBytes(needs);
  return MakeEngine(StartModel(options, kDevices).value(), {}).value();
}

TEST(Devices, ANameThatIsNoneOfTheirsIsRefused) {
  EngineOptions options = OnBytes();
  options.device = "abacus";
  const auto refused = StartModel(options, kDevices);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_EQ(refused.error().message, "--device 'abacus' is unknown; use one of auto, other, bytes");
}

TEST(Devices, NeedWhatTheirOwnProcesssRanksNeed) {
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

void AddTo(Engine& engine, uint64_t id, int most) {
  Request request;
  request.id = id;
  request.prompt_ids = {5, 6, 7, static_cast<int32_t>(10 + id)};
  request.params.max_tokens = most;
  request.params.ignore_eos = true;
  ASSERT_TRUE(engine.Add(std::move(request)));
}

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

TEST(ExecutorSeam, WhatIsAbortedInFlightEndsOnceWithoutAnotherToken) {
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

TEST(ExecutorSeam, WhatEndsIsToldToTheExecutorEvenIfItIsAborted) {
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
