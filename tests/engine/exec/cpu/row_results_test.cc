#include "engine/exec/cpu/row_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace pinion {
namespace {

using ::testing::ElementsAre;

constexpr size_t kWidth = 40, kStride = 64;

// Allows the tokens of one word, and remembers which rows it was given, and by which threads.
struct Caller final : StepCaller {
  std::span<const uint32_t> Mask(size_t wanted) override {
    return wanted == without_mask ? std::span<const uint32_t>() : std::span(&word, 1);
  }
  void Take(size_t wanted, const float* row, size_t width) override {
    EXPECT_EQ(width, kWidth);
    taken.push_back(wanted);
    firsts.push_back(row[0]);
    threads.insert(std::this_thread::get_id());
  }
  uint32_t word = ~uint32_t{0};
  size_t without_mask = SIZE_MAX;
  std::vector<size_t> taken;
  std::vector<float> firsts;
  std::set<std::thread::id> threads;
};

class RowResultsTest : public ::testing::Test {
 protected:
  RowResultsTest() {
    Plan plan;
    plan.ranks.push_back({0, {}, {}, 3});
    ranks_ = Ranks::Start(plan).value();
  }

  static SamplingRequest Greedy(uint64_t sequence, double repetition_penalty = 1) {
    SamplingRequest request;
    request.sequence = sequence;
    request.params.repetition_penalty = repetition_penalty;
    return request;
  }

  // Rows whose best token is `best`, and whose second is the one after it.
  StepOutput Run(const StepInput& input, const std::vector<int32_t>& best, Caller& caller) {
    samplers_.Update(input);
    std::vector<float> logits(best.size() * kStride, 0);
    for (size_t i = 0; i < best.size(); ++i) {
      logits[i * kStride] = static_cast<float>(i);
      logits[i * kStride + static_cast<size_t>(best[i])] = 100;
      logits[i * kStride + static_cast<size_t>(best[i]) + 1] = 99;
    }
    RowResults results(kernels::TableFor(kernels::Isa::kScalar), kWidth, input, samplers_, caller);
    // In two chunks, as a long step's logits come.
    const size_t half = best.size() / 2;
    ranks_->Run([&](const Worker& worker) {
      results.Take(worker, 0, half, logits.data(), kStride);
      worker.TeamBarrier();
      results.Take(worker, half, best.size() - half, logits.data() + half * kStride, kStride);
    });
    return results.TakeOutput();
  }

  std::unique_ptr<Ranks> ranks_;
  Samplers samplers_;
};

TEST_F(RowResultsTest, EveryRowIsPutToItsUse) {
  StepInput input;
  input.wanted = {{0, RowUse::kItself},
                  {1, RowUse::kRating, 0, false, {}, 8, 1},
                  {2, RowUse::kToken, 5},
                  {3, RowUse::kItself},
                  {4, RowUse::kToken, 6}};
  input.begun = {Greedy(5), Greedy(6)};
  Caller caller;
  const StepOutput output = Run(input, {3, 7, 11, 13, 17}, caller);
  ASSERT_EQ(output.tokens.size(), 5u);
  EXPECT_EQ(output.tokens[1].id, 8);
  EXPECT_EQ(output.tokens[1].rank, 2u);
  EXPECT_EQ(output.tokens[1].top.at(0).first, 7);
  EXPECT_EQ(output.tokens[2].id, 11);
  EXPECT_EQ(output.tokens[4].id, 17);
  EXPECT_THAT(caller.taken, ElementsAre(0, 3));
  EXPECT_THAT(caller.firsts, ElementsAre(0, 3));
  EXPECT_THAT(caller.threads, ElementsAre(std::this_thread::get_id()));
}

TEST_F(RowResultsTest, AConstrainedRowChoosesTokensOfItsMaskAndNothingWithoutOne) {
  StepInput input;
  input.wanted = {
      {0, RowUse::kToken, 5, true}, {1, RowUse::kToken, 6, true}, {2, RowUse::kToken, 7, false}};
  input.begun = {Greedy(5), Greedy(6), Greedy(7)};
  Caller caller;
  caller.word = ~(uint32_t{1} << 20);
  caller.without_mask = 1;
  const StepOutput output = Run(input, {20, 20, 20}, caller);
  EXPECT_EQ(output.tokens[0].id, 21);
  EXPECT_EQ(output.tokens[1].id, -1);
  EXPECT_EQ(output.tokens[2].id, 20);
}

// A repetition penalty tells whether the sampler is the one of the steps before.
TEST_F(RowResultsTest, ASequenceKeepsItsSamplerUntilItEnds) {
  StepInput first;
  first.wanted = {{0, RowUse::kToken, 5}};
  first.begun = {Greedy(5, 1.5)};
  Caller caller;
  EXPECT_EQ(Run(first, {10}, caller).tokens[0].id, 10);
  StepInput second;
  second.wanted = first.wanted;
  EXPECT_EQ(Run(second, {10}, caller).tokens[0].id, 11) << "10 was chosen before";
  StepInput again = first;  // another request of the same number
  again.ended = {5};
  EXPECT_EQ(Run(again, {10}, caller).tokens[0].id, 10);
  StepInput last;
  last.ended = {5};
  Run(last, {}, caller);
  EXPECT_EQ(samplers_.count(), 0u);
}

}  // namespace
}  // namespace pinion
