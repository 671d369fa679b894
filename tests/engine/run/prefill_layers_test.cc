// Blocks of which some layers have arrived, and the others do not.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "engine/transfer/prefill_server.h"
#include "tests/engine/run/split_engines.h"

namespace pinion {
namespace {

// An engine that decodes, has ordered a prompt, and got one of two layers of its first blocks.
class HalfABlock : public ::testing::Test {
 protected:
  static constexpr size_t kHalf = size_t{kSplitBlock} * 2 * 16 * 2 * 4;  // bytes of a layer
  static constexpr size_t kArrived = 3;                                  // blocks

  void SetUp() override {
    options_ = SplitOptions("preset:tiny");
    options_.kv_cache_bytes = 88 << 10;  // 11 blocks, of which the answer takes 9
    request_ = Prompts(8)[6];
    alone_ = AloneAnswers(options_, {request_});
    const std::string address = SocketPath("half");
    PrefillServer::Options served;
    served.listen = *ParseAddress(address, "");
    served.most_tokens = 1000;  // no facts: everybody may order
    server_ = PrefillServer::Start(std::move(served)).value();
    engine_ = StartDecoding(WithRole(options_, Role::kDecode, address));
    ASSERT_TRUE(engine_->Add(request_));
    while (!(order_ = server_->Next())) std::this_thread::yield();
    SendLayer(0);
    AwaitBytes(kArrived * kHalf);
  }

  // Of the first blocks; nothing that the model would compute.
  void SendLayer(uint32_t layer) {
    const uint32_t bytes = kHalf;
    server_->Send(order_->from, BlocksMessage{order_->order->id, 0, 0, layer * bytes, bytes,
                                              std::string(kArrived * kHalf, 'x')});
  }
  void SendDone() { server_->Send(order_->from, DoneMessage{order_->order->id, "", 0}); }
  void AwaitBytes(size_t bytes) {
    std::vector<TokenEvent> events;
    while (engine_->stats().transfer.bytes < bytes) engine_->Step(events);
    EXPECT_TRUE(events.empty());
  }
  // All of it is computed here.
  void ExpectRightAnswer(uint64_t failed) {
    Outputs outputs;
    StepAll(*engine_, outputs);
    EXPECT_EQ(outputs, alone_);
    EXPECT_EQ(engine_->stats().transfer.taken_tokens, 0u);
    EXPECT_EQ(engine_->stats().transfer.failed, failed);
    EXPECT_EQ(engine_->stats().prompt_tokens, request_.prompt_ids.size());
    EXPECT_EQ(engine_->stats().blocks_used, 0u);
  }

  EngineOptions options_;
  Request request_;
  Outputs alone_;
  std::unique_ptr<PrefillServer> server_;
  std::optional<PrefillServer::Arrived> order_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(HalfABlock, IsNotAPrefix) {
  EXPECT_EQ(engine_->stats().blocks_used, 0u) << "it stands in nobody's way";
  SendDone();
  ExpectRightAnswer(0);
}

TEST_F(HalfABlock, OfALostEngineIsNotAPrefix) {
  server_.reset();
  ExpectRightAnswer(1);
}

TEST_F(HalfABlock, IsNotCompletedIfItsRoomWasTaken) {
  engine_->DropPrefixCache();
  SendLayer(1);
  SendDone();
  ExpectRightAnswer(1);
}

// The request does not wait for the rest, and the other engine does not compute it.
TEST_F(HalfABlock, IsGivenUpAtOnceIfItsRoomWasTaken) {
  engine_->DropPrefixCache();
  SendLayer(1);
  ExpectRightAnswer(1);
  std::optional<PrefillServer::Arrived> cancelled;
  while (!(cancelled = server_->Next())) std::this_thread::yield();
  EXPECT_FALSE(cancelled->order);
  EXPECT_EQ(cancelled->from.id, order_->from.id);
}

TEST_F(HalfABlock, OfAnAbortedPromptIsNotAPrefix) {
  engine_->Abort(request_.id);
  std::vector<TokenEvent> events;
  engine_->Step(events);
  ASSERT_EQ(events.size(), 1u);
  SendLayer(1);  // too late
  server_.reset();
  while (IsUp(*engine_)) std::this_thread::yield();
  EXPECT_EQ(AnswersOf(*engine_, {request_}), alone_);
  EXPECT_EQ(engine_->stats().transfer.taken_tokens, 0u);
  EXPECT_EQ(engine_->stats().kv.evictions, 0u) << "its blocks are free again";
}

// The tokens of all three blocks are then not computed here.
TEST_F(HalfABlock, IsAPrefixOnceTheOtherHalfIsThere) {
  SendLayer(1);
  SendDone();
  Outputs outputs;
  StepAll(*engine_, outputs);
  EXPECT_EQ(engine_->stats().transfer.taken_tokens, kArrived * kSplitBlock);
  EXPECT_EQ(engine_->stats().prompt_tokens, request_.prompt_ids.size() - kArrived * kSplitBlock);
  EXPECT_NE(outputs, alone_) << "what has arrived is used as it came";
}

}  // namespace
}  // namespace pinion
