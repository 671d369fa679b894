#include "engine/exec/leading_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "engine/exec/samplers.h"
#include "engine/exec/step_wire.h"
#include "tests/engine/comm/thread_world.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;

struct Seen {
  std::vector<std::string> steps;  // encoded
  std::string calls;               // B: a step has begun, F: the oldest has ended
  std::vector<std::pair<size_t, bool>> prepared;
};

// Computes nothing, and tells what it was told to compute.
class Recorder final : public Executor {
 public:
  explicit Recorder(Seen& seen, size_t steps_in_flight = 1)
      : seen_(seen), steps_in_flight_(steps_in_flight) {}
  ~Recorder() override { EXPECT_TRUE(open_.empty()); }
  Status AllocateKv(const KvRoom&) override { return {}; }
  void Begin(const StepInput& input) override {
    seen_.steps.push_back(Encode(input));
    seen_.calls += 'B';
    open_.push_back(&input);
    EXPECT_LE(open_.size(), steps_in_flight_);
  }
  StepOutput Finish(StepCaller&) override {
    StepOutput output;
    output.tokens.resize(1);
    output.tokens[0].id = open_.front()->tokens[0] + 1;
    open_.pop_front();
    seen_.calls += 'F';
    return output;
  }
  size_t steps_in_flight() const override { return steps_in_flight_; }
  ExecutorMemory memory() const override { return {}; }
  StepReads reads() const override { return {}; }
  void PrepareKv(size_t reached, bool half) override {
    EXPECT_TRUE(open_.empty());
    seen_.prepared.emplace_back(reached, half);
  }

 private:
  Seen& seen_;
  const size_t steps_in_flight_;
  std::deque<const StepInput*> open_;
};

// Processes each wanted row as a device may that knows of no other process.
class Choosing final : public Executor {
 public:
  Status AllocateKv(const KvRoom&) override { return {}; }
  void Begin(const StepInput& input) override { input_ = &input; }
  StepOutput Finish(StepCaller& caller) override {
    const StepInput& input = *input_;
    samplers_.Update(input);
    StepOutput output;
    for (size_t i = 0; i < input.wanted.size(); ++i) {
      rows_.push_back(input.wanted[i].row);
      std::vector<float> logits = {0, 0, 9, 0};
      if (input.wanted[i].use == RowUse::kItself)
        caller.Take(i, logits.data(), logits.size());
      else
        output.tokens.push_back(
            samplers_.Choose(kernels::TableFor(kernels::Isa::kScalar), input, i, logits, caller));
    }
    EXPECT_THAT(rows_, ElementsAre(0, 2, 3));
    return output;
  }
  ExecutorMemory memory() const override { return {}; }
  StepReads reads() const override { return {}; }

 private:
  Samplers samplers_;
  const StepInput* input_ = nullptr;
  std::vector<int32_t> rows_;
};

TEST(LeadingExecutor, OthersKnowTheWantedRowsAndChooseNoTokens) {
  testing::ThreadWorld(2).Run([&](Communicator& world) {
    auto own = std::make_unique<Choosing>();
    if (world.process() != 0) return FollowExecutor(*own, world);
    const auto leader = LeadExecutor(std::move(own), world);
    NoCaller nobody;
    StepInput input;
    input.tokens = {41, 42, 43, 44};
    input.begun = {{.sequence = 7, .params = {.temperature = 0}}};
    input.wanted = {{.row = 0},
                    {.row = 2, .use = RowUse::kToken, .sequence = 7, .jumped = {1}},
                    {.row = 3, .use = RowUse::kRating, .given = 2}};
    leader->Begin(input);
    const StepOutput output = leader->Finish(nobody);
    ASSERT_EQ(output.tokens.size(), 2u);
    EXPECT_EQ(output.tokens[0].id, 2);
  });
}

TEST(LeadingExecutor, EveryProcessComputesTheLeadersStepsInTheirOrderUntilItEnds) {
  constexpr size_t kProcesses = 3;
  std::vector<Seen> seen(kProcesses);
  testing::ThreadWorld(kProcesses).Run([&](Communicator& world) {
    auto own = std::make_unique<Recorder>(seen[world.process()]);
    if (world.process() != 0) return FollowExecutor(*own, world);
    const auto leader = LeadExecutor(std::move(own), world);
    NoCaller nobody;
    StepInput input;
    input.ended = {8};
    for (int32_t token : {41, 51}) {
      input.tokens = {token};
      input.slices = {{0, 1, 0, {{3}}}};
      leader->Begin(input);
      EXPECT_EQ(leader->Finish(nobody).tokens.at(0).id, token + 1);
      leader->PrepareKv(static_cast<size_t>(token), token == 51);
    }
  });
  for (const Seen& one : seen) {
    ASSERT_EQ(one.steps.size(), 2u);
    for (size_t step = 0; step < 2; ++step) {
      StepInput sent = DecodeStep(seen[0].steps[step]).value();
      if (&one != &seen[0]) sent.ended.clear();  // others choose no tokens
      EXPECT_EQ(one.steps[step], Encode(sent));
    }
    EXPECT_THAT(one.prepared, ElementsAre(std::pair(41, false), std::pair(51, true)));
  }
  EXPECT_EQ(DecodeStep(seen[0].steps[1])->tokens, std::vector<int32_t>{51});
}

// The others wait for a step only when as many have begun as may be in flight, or for the quiet
// that an order wants.
TEST(LeadingExecutor, StepsOfEveryProcessBeginBeforeEarlierOnesEnd) {
  std::vector<Seen> seen(3);
  testing::ThreadWorld(3).Run([&](Communicator& world) {
    auto own = std::make_unique<Recorder>(seen[world.process()], 3);
    if (world.process() != 0) return FollowExecutor(*own, world);
    const auto leader = LeadExecutor(std::move(own), world);
    EXPECT_EQ(leader->steps_in_flight(), 3u);
    NoCaller nobody;
    std::vector<StepInput> inputs(5);
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i].tokens = {static_cast<int32_t>(10 * i)};
      leader->Begin(inputs[i]);
      if (i >= 2) EXPECT_EQ(leader->Finish(nobody).tokens.at(0).id, 10 * (i - 2) + 1);
    }
    for (int i = 0; i < 2; ++i) leader->Finish(nobody);
    leader->PrepareKv(7, true);
    leader->Begin(inputs[0]);
    leader->Finish(nobody);
  });
  for (const Seen& one : seen) {
    EXPECT_EQ(one.calls, "BBBFBFBFFFBF");
    EXPECT_THAT(one.prepared, ElementsAre(std::pair(7, true)));
    EXPECT_EQ(one.steps, seen[0].steps);
  }
}

// Counts broadcasts, which are collective calls, and passes everything else on.
class BroadcastCounter final : public Communicator {
 public:
  explicit BroadcastCounter(Communicator& world) : world_(world) {}
  size_t process() const override { return world_.process(); }
  size_t processes() const override { return world_.processes(); }
  void Gather(const void* mine, size_t bytes, void* all) override {
    world_.Gather(mine, bytes, all);
  }
  void GatherAtLeader(const void* mine, const std::vector<size_t>& bytes, void* all) override {
    world_.GatherAtLeader(mine, bytes, all);
  }
  void Broadcast(void* data, size_t bytes) override {
    ++broadcasts;
    world_.Broadcast(data, bytes);
  }
  void Send(size_t process, int channel, const void* data, size_t bytes) override {
    world_.Send(process, channel, data, bytes);
  }
  void Receive(size_t process, int channel, void* data, size_t bytes) override {
    world_.Receive(process, channel, data, bytes);
  }
  std::unique_ptr<Communicator> Part(int part) override { return world_.Part(part); }

  size_t broadcasts = 0;

 private:
  Communicator& world_;
};

// A step in flight may be in collective calls itself, and those of a world come one at a time.
TEST(LeadingExecutor, OrdersBesideStepsInFlightAreNotCollectiveCalls) {
  for (const size_t steps_in_flight : {1, 2}) {
    std::vector<Seen> seen(2);
    testing::ThreadWorld(2).Run([&](Communicator& world) {
      BroadcastCounter counter(world);
      auto own = std::make_unique<Recorder>(seen[world.process()], steps_in_flight);
      if (world.process() != 0) {
        FollowExecutor(*own, counter);
      } else {
        const auto leader = LeadExecutor(std::move(own), counter);
        NoCaller nobody;
        StepInput input;
        input.tokens = {41};
        leader->Begin(input);
        leader->Finish(nobody);
        leader->PrepareKv(7, true);
      }
      EXPECT_EQ(counter.broadcasts > 0, steps_in_flight == 1) << counter.broadcasts;
    });
  }
}

}  // namespace
}  // namespace pinion
