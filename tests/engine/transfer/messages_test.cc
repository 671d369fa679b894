#include "engine/transfer/messages.h"

#include <gtest/gtest.h>

#include <random>

namespace pinion {
namespace {

// The contents of a frame, or nothing.
std::optional<TransferMessage> Decode(const std::string& frame) {
  const FrameHeader header = DecodeHeader(frame.data());
  EXPECT_EQ(header.payload_bytes, frame.size() - FrameHeader::kBytes);
  return DecodePayload(header.type, frame.substr(FrameHeader::kBytes));
}

TEST(TransferMessages, ComeBackAsTheyWere) {
  const auto hello = Decode(EncodeTransfer(HelloMessage{{{"model", "a"}, {"-tp", "2"}}}));
  EXPECT_EQ(std::get<HelloMessage>(*hello).facts, (Facts{{"model", "a"}, {"-tp", "2"}}));
  const auto welcome = Decode(EncodeTransfer(WelcomeMessage{"no", 5}));
  EXPECT_EQ(std::get<WelcomeMessage>(*welcome).refusal, "no");
  EXPECT_EQ(std::get<WelcomeMessage>(*welcome).most_tokens, 5u);
  const auto order = Decode(EncodeTransfer(OrderMessage{7, {1, -2, 3}, "salt", 5, -6}));
  const auto& got = std::get<OrderMessage>(*order);
  EXPECT_EQ(got.id, 7u);
  EXPECT_EQ(got.tokens, (std::vector<int32_t>{1, -2, 3}));
  EXPECT_EQ(got.salt, "salt");
  EXPECT_EQ(got.first_block, 5u);
  EXPECT_EQ(got.priority, -6);
  EXPECT_EQ(std::get<CancelMessage>(*Decode(EncodeTransfer(CancelMessage{8}))).id, 8u);
  const auto blocks = Decode(EncodeTransfer(BlocksMessage{9, 1, 2, 30, 3, std::string("a\0b", 3)}));
  const auto& sent = std::get<BlocksMessage>(*blocks);
  EXPECT_EQ(sent.id, 9u);
  EXPECT_EQ(sent.table, 1u);
  EXPECT_EQ(sent.first, 2u);
  EXPECT_EQ(sent.at, 30u);
  EXPECT_EQ(sent.bytes, 3u);
  EXPECT_EQ(sent.images, std::string("a\0b", 3));
  EXPECT_EQ(std::get<StateMessage>(*Decode(EncodeTransfer(StateMessage{10, "s"}))).image, "s");
  const auto done = Decode(EncodeTransfer(DoneMessage{11, "lost", 12}));
  EXPECT_EQ(std::get<DoneMessage>(*done).error, "lost");
  EXPECT_EQ(std::get<DoneMessage>(*done).cached_tokens, 12u);
  EXPECT_TRUE(std::holds_alternative<AliveMessage>(*Decode(EncodeTransfer(AliveMessage{}))));
}

TEST(TransferMessages, ThatAreCutOrLengthenedAreRefused) {
  const std::string frame = EncodeTransfer(OrderMessage{7, {1, 2, 3}, "salt", 5, 0});
  const uint32_t type = DecodeHeader(frame.data()).type;
  const std::string payload = frame.substr(FrameHeader::kBytes);
  ASSERT_TRUE(DecodePayload(type, payload));
  for (size_t size = 0; size < payload.size(); ++size)
    EXPECT_FALSE(DecodePayload(type, payload.substr(0, size))) << size;
  EXPECT_FALSE(DecodePayload(type, payload + '\0'));
}

TEST(TransferMessages, OfAnotherTypeAreRefused) {
  const std::string frame = EncodeTransfer(CancelMessage{7});
  const uint32_t type = DecodeHeader(frame.data()).type;
  const std::string payload = frame.substr(FrameHeader::kBytes);
  EXPECT_FALSE(DecodePayload(type & 0xffff, payload)) << "without our mark";
  EXPECT_FALSE(DecodePayload((type & 0xffff0000u) | 99, payload));
}

TEST(TransferMessages, ThatAreNoiseDoNoHarm) {
  std::mt19937 rng(20261126);
  const uint32_t mark = DecodeHeader(EncodeTransfer(HelloMessage{}).data()).type & 0xffff0000u;
  for (int round = 0; round < 20000; ++round) {
    std::string payload(rng() % 64, '\0');
    for (char& c : payload) c = static_cast<char>(rng() % 4 == 0 ? rng() % 256 : rng() % 3);
    static_cast<void>(DecodePayload(mark | rng() % 10, payload));
  }
}

}  // namespace
}  // namespace pinion
