// Ranks may run at any pace: all of them must have synchronised between a write by one rank and
// another's read of it, and again before the next write.

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/engine/decoder/loaded.h"

namespace pinion {
namespace {

// Two ranks of one thread each. Only one of them runs at a time, as far as the phases let it; the
// other gets its turn when it has to wait. Thus each rank is at times as far ahead of the other,
// and as far behind it, as it can ever be, and in the same way in every run.
class RanksInTurns final : public Ranks {
 public:
  explicit RanksInTurns(int first) : first_(first) {
    for (int rank = 0; rank < kCount; ++rank)
      phases_.push_back(
          std::make_unique<Phases>(std::vector<int>{1}, 0, [this, rank] { PassTurn(rank); }));
    for (const auto& phases : phases_) phases->SetPeers({phases_[0].get(), phases_[1].get()});
  }

  int count() const override { return kCount; }
  int threads(int) const override { return 1; }
  double waited_s(int) const override { return 0; }

  void Run(const std::function<void(const Worker&)>& body) override {
    turn_ = first_;
    running_ = kCount;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kCount; ++rank)
      threads.emplace_back([this, &body, rank] { Lead(rank, body); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  static constexpr int kCount = 2;

  void Lead(int rank, const std::function<void(const Worker&)>& body) {
    AwaitTurn(rank);
    body({rank, kCount, 0, 1, nullptr, nullptr, phases_[static_cast<size_t>(rank)].get()});
    const std::lock_guard lock(mutex_);
    --running_;
    GiveTurnTo(1 - rank);
  }

  void PassTurn(int rank) {
    {
      const std::lock_guard lock(mutex_);
      CHECK(running_ == kCount) << "rank " << rank << " waits for one that has ended";
      GiveTurnTo(1 - rank);
    }
    AwaitTurn(rank);
  }

  void GiveTurnTo(int rank) {
    turn_ = rank;
    changed_.notify_all();
  }

  void AwaitTurn(int rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == rank; });
  }

  const int first_;
  std::vector<std::unique_ptr<Phases>> phases_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0, running_ = 0;
};

class RankOrder : public ::testing::TestWithParam<const char*> {};

// Every kind of layer: dense, experts, latent attention, norms over the heads of all ranks, norms
// after a sum of all ranks, gates that are kept by the mean of all ranks'.
TEST_P(RankOrder, ReadsNothingOfARankBeforeItIsWrittenNorAfterItIsWrittenAgain) {
  const auto golden = testing::LoadGolden(GetParam()).back();
  for (const int first : {0, 1}) {
    const ModelFiles files = FindModel(testing::ModelFolder(GetParam())).value();
    testing::Loaded model(files, OpenWeights(files).value(), std::make_unique<RanksInTurns>(first),
                          testing::Float32());
    const auto logits = model.Run(golden.input_ids, 20, testing::kShuffled);
    EXPECT_LT(testing::WorstError(golden, logits), 3e-4) << "rank " << first << " first";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RankOrder,
                         ::testing::Values("llama", "mixtral", "deepseekv3", "olmo2", "gemma2",
                                           "gemma3n"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace pinion
