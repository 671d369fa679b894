#include "engine/exec/leading_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "engine/exec/step_wire.h"
#include "tests/engine/comm/thread_world.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;

struct Seen {
  std::vector<std::string> steps;  // encoded
  std::vector<std::pair<size_t, bool>> prepared;
};

// Computes nothing, and tells what it was told to compute.
class Recorder final : public Executor {
 public:
  explicit Recorder(Seen& seen) : seen_(seen) {}
  Status AllocateKv(const KvRoom&) override { return {}; }
  StepOutput Execute(const StepInput& input, StepCaller&) override {
    seen_.steps.push_back(Encode(input));
    StepOutput output;
    output.tokens.resize(1);
    output.tokens[0].id = input.tokens[0] + 1;
    return output;
  }
  ExecutorMemory memory() const override { return {}; }
  StepReads reads() const override { return {}; }
  void PrepareKv(size_t reached, bool half) override { seen_.prepared.emplace_back(reached, half); }

 private:
  Seen& seen_;
};

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
      EXPECT_EQ(leader->Execute(input, nobody).tokens.at(0).id, token + 1);
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

}  // namespace
}  // namespace pinion
