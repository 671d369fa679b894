// An engine that computes prompts for others, over a link that stands still and goes on.

#include "engine/run/prefill_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <set>

namespace pinion {
namespace {

constexpr size_t kServiceBlock = 4;

class FakeLink final : public PrefillServer {
 public:
  void Order(uint64_t id, size_t tokens) {
    Arrived arrived{{id, unsent_}, OrderMessage{}};
    arrived.order->id = 1000 + id;
    for (size_t i = 0; i < tokens; ++i)
      arrived.order->tokens.push_back(static_cast<int32_t>(id * 100 + i));
    arrived_.push_back(std::move(arrived));
  }
  void Cancel(uint64_t id) { arrived_.push_back({{id}, std::nullopt}); }

  std::optional<Arrived> Next() override {
    if (arrived_.empty()) return std::nullopt;
    std::optional<Arrived> next(std::move(arrived_.front()));
    arrived_.pop_front();
    return next;
  }
  bool has_next() const override { return !arrived_.empty(); }
  int wake_fd() const override { return 7; }
  void Send(const Receiver& to, TransferMessage message) override {
    const uint64_t id = to.id;
    EXPECT_FALSE(stands_still() && std::holds_alternative<BlocksMessage>(message)) << id;
    if (const auto* blocks = std::get_if<BlocksMessage>(&message)) {
      EXPECT_EQ(blocks->id, 1000 + id);
      for (size_t i = 0; i < blocks->images.size(); ++i) blocks_[id].insert(blocks->first + i);
    } else if (const auto* done = std::get_if<DoneMessage>(&message)) {
      EXPECT_TRUE(done_.emplace(id, done->error).second) << "one end for each";
    }
  }
  const Address& address() const override { return address_; }
  size_t connections() const override { return 1; }

  void StandStill(bool still) { *unsent_ = still ? size_t{1} << 40 : 0; }
  bool stands_still() const { return *unsent_ > 0; }

  std::shared_ptr<std::atomic<size_t>> unsent_ = std::make_shared<std::atomic<size_t>>(0);
  std::deque<Arrived> arrived_;
  std::map<uint64_t, std::set<size_t>> blocks_;  // sent, by order
  std::map<uint64_t, std::string> done_;         // errors
  Address address_;
};

// Images of one byte.
class OneByte final : public Executor {
 public:
  Status AllocateKv(const KvRoom&) override { return {}; }
  void Begin(const StepInput&) override {}
  StepOutput Finish(StepCaller&) override { return {}; }
  ExecutorMemory memory() const override { return {}; }
  StepReads reads() const override { return {}; }
  ImageBytes image_bytes() const override { return {1, 0}; }
};

class ServiceTest : public ::testing::Test {
 protected:
  void Make(size_t blocks) {
    pool_.emplace(blocks, kServiceBlock, true);
    SchedulerOptions options;
    options.max_num_batched_tokens = 8;
    options.max_model_len = 60;
    scheduler_.emplace(options, *pool_);
    service_.emplace(
        PrefillRole::Parts{*pool_,
                           {Reach{}},
                           nullptr,
                           *scheduler_,
                           executor_,
                           1 << 20,
                           [this](uint64_t id) { EXPECT_TRUE(scheduler_->Abort(id)); }},
        link_);
  }
  void Step() {
    service_->BeforeStep(0);
    if (scheduler_->idle()) return;
    size_t samples = 0;
    for (const Slice& slice : scheduler_->Schedule()) samples += slice.samples ? 1 : 0;
    service_->AfterStep(scheduler_->Commit(std::vector<int32_t>(samples, 1)));
  }

  std::shared_ptr<FakeLink> link_ = std::make_shared<FakeLink>();
  OneByte executor_;
  std::optional<BlockPool> pool_;
  std::optional<Scheduler> scheduler_;
  std::optional<PrefillService> service_;
};

TEST_F(ServiceTest, EveryFullBlockOfAPromptIsSentOnce) {
  Make(100);
  for (uint64_t id = 1; id <= 6; ++id) link_->Order(id, 7 * id);
  for (int step = 0; step < 50; ++step) Step();
  EXPECT_TRUE(service_->idle());
  for (uint64_t id = 1; id <= 6; ++id) {
    EXPECT_EQ(link_->done_.at(id), "");
    EXPECT_EQ(link_->blocks_[id].size(), (7 * id - 1) / kServiceBlock) << id;
  }
  EXPECT_EQ(pool_->used(), 0u);
}

TEST_F(ServiceTest, ALinkThatStandsStillHoldsBackOrdersAndNobodyElse) {
  Make(20);
  for (uint64_t id = 1; id <= 12; ++id) link_->Order(id, 18);  // 4 full blocks
  link_->StandStill(true);
  for (int step = 0; step < 100; ++step) Step();
  EXPECT_TRUE(scheduler_->idle()) << "what was begun has been computed";
  EXPECT_EQ(pool_->used(), 0u) << "what waits to be sent stands in nobody's way";
  EXPECT_LT(service_->stats().orders, 12u) << "the rest is not begun";
  EXPECT_FALSE(service_->idle());
  EXPECT_GT(service_->wait_ms(), 0);
  EXPECT_TRUE(link_->done_.empty());
  // The engine's own requests take the cache meanwhile.
  auto own = std::make_unique<Sequence>();
  own->id = 5;
  own->tokens.assign(50, 3);
  own->params.max_tokens = 8;
  own->params.ignore_eos = true;
  ASSERT_TRUE(scheduler_->Add(std::move(own)));
  while (!scheduler_->idle()) Step();
  link_->StandStill(false);
  for (int step = 0; step < 100; ++step) Step();
  EXPECT_TRUE(service_->idle());
  ASSERT_EQ(link_->done_.size(), 12u);
  size_t failed = 0;
  for (const auto& [id, error] : link_->done_) {
    if (error.empty()) {
      EXPECT_EQ(link_->blocks_[id].size(), 4u) << id;
    } else {
      ++failed;
    }
  }
  EXPECT_GT(failed, 0u) << "those whose blocks were taken";
  EXPECT_LT(failed, 12u);
  EXPECT_EQ(service_->stats().failed, failed);
}

TEST_F(ServiceTest, AReceiverThatStandsStillHoldsBackNoOther) {
  Make(100);
  link_->StandStill(true);
  link_->Order(1, 18);
  link_->arrived_.back().from.unsent = std::make_shared<std::atomic<size_t>>(size_t{1} << 40);
  link_->Order(2, 18);
  link_->StandStill(false);
  for (int step = 0; step < 20; ++step) Step();
  EXPECT_TRUE(link_->done_.contains(2));
  EXPECT_FALSE(link_->done_.contains(1));
}

TEST_F(ServiceTest, CancelledOrdersEndWithoutAnAnswer) {
  Make(30);
  link_->StandStill(true);
  for (uint64_t id = 1; id <= 4; ++id) link_->Order(id, 18);
  Step();
  Step();
  for (uint64_t id = 1; id <= 4; ++id) link_->Cancel(id);
  link_->Cancel(99);  // unknown
  for (int step = 0; step < 50; ++step) Step();
  link_->StandStill(false);
  Step();
  EXPECT_TRUE(service_->idle());
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_TRUE(link_->done_.empty());
  EXPECT_EQ(pool_->used(), 0u);
}

}  // namespace
}  // namespace pinion
