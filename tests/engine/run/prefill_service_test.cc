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
constexpr size_t kImage = 4;  // bytes of a block, one a layer

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
      for (size_t i = 0; i < blocks->images.size() / blocks->bytes; ++i) {
        size_t& sent = sent_[id][blocks->first + i];
        EXPECT_EQ(sent, blocks->at) << "every byte once, in order";
        sent += blocks->bytes;
      }
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
  size_t whole(uint64_t id) {  // blocks
    size_t count = 0;
    for (const auto& [block, bytes] : sent_[id]) count += bytes == kImage ? 1 : 0;
    return count;
  }

  std::map<uint64_t, std::map<size_t, size_t>> sent_;  // bytes of each block, by order
  std::map<uint64_t, std::string> done_;               // errors
  Address address_;
};

// Layers of one byte.
class FourLayers final : public Executor {
 public:
  Status AllocateKv(const KvRoom&) override { return {}; }
  void Begin(const StepInput&) override {}
  StepOutput Finish(StepCaller&) override { return {}; }
  ExecutorMemory memory() const override { return {}; }
  StepReads reads() const override { return {}; }
  ImageBytes image_bytes() const override { return {{kImage}, 0}; }
  void ReadBlocks(std::span<const int32_t> blocks, const ImagePart& part, std::byte*) override {
    for (const int32_t block : blocks)
      EXPECT_TRUE(!in_step_.contains(block) || part.first + part.bytes <= written_)
          << "the step still writes it";
  }

  std::set<int32_t> in_step_;
  size_t written_ = 0;
};

using BytesOfBlocks = std::map<size_t, size_t>;

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
  // False: there is nothing to compute.
  bool Begin() {
    service_->BeforeStep(0);
    if (scheduler_->idle()) return false;
    slices_ = &scheduler_->Schedule();
    for (const Slice& slice : *slices_) {
      const std::vector<int32_t>& blocks = slice.sequence->tables[0].blocks;
      for (size_t i = slice.first / kServiceBlock; i < blocks.size(); ++i)
        executor_.in_step_.insert(blocks[i]);
    }
    return true;
  }
  void Layers(size_t layers) {
    executor_.written_ = layers;
    const size_t bytes[] = {layers};
    service_->DuringStep(*slices_, bytes);
  }
  void End() {
    executor_.in_step_.clear();
    size_t samples = 0;
    for (const Slice& slice : *slices_) samples += slice.samples ? 1 : 0;
    service_->AfterStep(scheduler_->Commit(std::vector<int32_t>(samples, 1)));
  }
  void Step() {
    if (!Begin()) return;
    for (size_t layers = 1; layers <= kImage; ++layers) Layers(layers);
    End();
  }
  void AddOwn(size_t tokens) {
    auto own = std::make_unique<Sequence>();
    own->id = 5;
    own->tokens.assign(tokens, 3);
    own->params.max_tokens = 8;
    own->params.ignore_eos = true;
    ASSERT_TRUE(scheduler_->Add(std::move(own)));
  }

  std::shared_ptr<FakeLink> link_ = std::make_shared<FakeLink>();
  FourLayers executor_;
  const std::vector<Slice>* slices_ = nullptr;
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
    EXPECT_EQ(link_->whole(id), (7 * id - 1) / kServiceBlock) << id;
    EXPECT_EQ(link_->sent_[id].size(), link_->whole(id)) << id;
  }
  EXPECT_EQ(pool_->used(), 0u);
}

TEST_F(ServiceTest, LayersLeaveBeforeTheStepEnds) {
  Make(100);
  link_->Order(1, 18);
  ASSERT_TRUE(Begin());  // two blocks
  EXPECT_TRUE(link_->sent_.empty());
  Layers(1);
  EXPECT_EQ(link_->sent_[1], (BytesOfBlocks{{0, 1}, {1, 1}}));
  Layers(3);
  EXPECT_EQ(link_->sent_[1], (BytesOfBlocks{{0, 3}, {1, 3}}));
  EXPECT_EQ(service_->stats().given_tokens, 0u) << "no block is whole";
  End();
  EXPECT_EQ(link_->sent_[1], (BytesOfBlocks{{0, 4}, {1, 4}}));
  EXPECT_EQ(service_->stats().given_tokens, 2 * kServiceBlock);
  Step();
  EXPECT_TRUE(link_->done_.empty());
  Step();
  EXPECT_EQ(link_->done_.at(1), "");
}

TEST_F(ServiceTest, ABlockThatAStepEndsBegunByAnotherIsSentOnce) {
  Make(100);
  AddOwn(2);  // takes a row of each step, so that steps end within blocks
  link_->Order(1, 18);
  for (int step = 0; step < 4; ++step) Step();
  EXPECT_EQ(link_->done_.at(1), "");
  EXPECT_EQ(link_->whole(1), 4u);
}

TEST_F(ServiceTest, MessagesThatALinkDidNotTakeDuringAStepAreSentLater) {
  Make(100);
  link_->Order(1, 18);
  ASSERT_TRUE(Begin());
  Layers(1);
  link_->StandStill(true);
  Layers(2);
  End();
  EXPECT_EQ(link_->sent_[1], (BytesOfBlocks{{0, 1}, {1, 1}}));
  ASSERT_TRUE(Begin());
  link_->StandStill(false);
  Layers(2);
  EXPECT_EQ(link_->sent_[1], (BytesOfBlocks{{0, 4}, {1, 4}, {2, 2}, {3, 2}}));
  link_->StandStill(true);
  End();
  Step();
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_TRUE(link_->done_.empty());
  link_->StandStill(false);
  Step();
  EXPECT_EQ(link_->whole(1), 4u);
  EXPECT_EQ(link_->done_.at(1), "");
}

TEST_F(ServiceTest, AnOrderOfWhichHalfABlockIsSentFailsIfTheRestIsEvicted) {
  Make(15);
  link_->Order(1, 18);
  ASSERT_TRUE(Begin());
  Layers(1);
  link_->StandStill(true);
  End();
  while (!scheduler_->idle()) Step();
  AddOwn(52);  // takes the whole cache
  while (!scheduler_->idle()) Step();
  link_->StandStill(false);
  Step();
  EXPECT_NE(link_->done_.at(1).find("evicted"), std::string::npos) << link_->done_.at(1);
  EXPECT_EQ(link_->sent_[1], (BytesOfBlocks{{0, 1}, {1, 1}}));
  EXPECT_EQ(service_->stats().failed, 1u);
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
  AddOwn(50);
  while (!scheduler_->idle()) Step();
  link_->StandStill(false);
  for (int step = 0; step < 100; ++step) Step();
  EXPECT_TRUE(service_->idle());
  ASSERT_EQ(link_->done_.size(), 12u);
  size_t failed = 0;
  for (const auto& [id, error] : link_->done_) {
    if (error.empty()) {
      EXPECT_EQ(link_->whole(id), 4u) << id;
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

TEST_F(ServiceTest, AnOrderThatIsCancelledDuringAStepEndsBeforeTheNext) {
  Make(30);
  link_->Order(1, 18);
  ASSERT_TRUE(Begin());
  Layers(1);
  link_->Cancel(1);
  link_->Order(2, 18);
  Layers(2);
  End();
  EXPECT_GT(pool_->used(), 0u);
  while (!service_->idle()) Step();
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_LE(link_->whole(1), 2u) << "what the step had of it, and no more";
  EXPECT_FALSE(link_->done_.contains(1));
  EXPECT_EQ(link_->whole(2), 4u);
  EXPECT_EQ(link_->done_.at(2), "");
  EXPECT_EQ(service_->stats().failed, 1u);
  EXPECT_EQ(pool_->used(), 0u);
}

}  // namespace
}  // namespace pinion
