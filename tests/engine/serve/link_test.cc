#include "engine/serve/link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>

namespace pinion {
namespace {

SubmitMessage MakeSubmit() {
  SubmitMessage submit;
  submit.id = 77;
  submit.count = 3;
  submit.priority = -2;
  submit.params.temperature = 0.7;
  submit.params.seed = 0xfedcba9876543210;
  submit.params.stop_token_ids = {5, 6};
  submit.params.eos_ids = {8};
  submit.params.stop = {"", "end"};
  submit.params.logprobs = 3;
  submit.params.logit_bias = {{9, -1.5}};
  submit.params.ignore_eos = true;
  submit.prompt_ids = {1, 2, 3};
  return submit;
}

EventsMessage MakeEvents() {
  EventsMessage batch;
  batch.events.resize(2);
  batch.events[0].request = 77;
  batch.events[0].has_token = true;
  batch.events[0].token = {42, -0.25, {{42, -0.25}, {7, -3}}};
  batch.events[0].output_tokens = 1;
  batch.events[0].now_ns = 123456789;
  batch.events[1].request = 78;
  batch.events[1].finish = FinishReason::kAborted;
  batch.stats.scheduler.running = 4;
  batch.stats.kv.prefix_hit_tokens = 64;
  batch.stats.output_tokens = 1000;
  batch.stats.prefill = {1, 2.5, {3, 4, 5, 6}, 7, {8, 28, 9, 10.5}};
  batch.stats.decode = {11, 12.5, {13, 14, 15, 16}, 17, {18, 29, 19, 20.5}};
  batch.stats.shared_kv_bytes = 21;
  batch.stats.waited_s = {22.5, 23.5};
  batch.stats.traffic = {.calls = 24, .delays = 27, .bytes = 25, .seconds = 26.5};
  return batch;
}

std::vector<LinkMessage> OneOfEach() {
  return {MakeSubmit(),
          AbortMessage{9, 4},
          PingMessage{5},
          ProfileMessage{"window.json"},
          InfoRequestMessage{},
          ReadyMessage{2048, 4096, 128, "{\"isa\":\"avx2\"}"},
          FailedMessage{ErrorCode::kUsage, "no such file"},
          RefusedMessage{12, "too long"},
          MakeEvents(),
          PongMessage{5},
          ProfiledMessage{"disk full"},
          InfoMessage{"{}"},
          ResetCacheMessage{},
          CacheResetMessage{true}};
}

TEST(Link, CarriesEveryMessageUnchanged) {
  for (const LinkMessage& message : OneOfEach()) {
    FrameReader reader;
    const std::string frame = EncodeFrame(message);
    reader.Append(frame);
    auto got = reader.Next();
    ASSERT_TRUE(got && *got);
    EXPECT_EQ((*got)->index(), message.index());
    EXPECT_EQ(EncodeFrame(**got), frame);
    EXPECT_FALSE(*reader.Next());
  }
}

TEST(Link, KeepsFieldValues) {
  FrameReader reader;
  reader.Append(EncodeFrame(MakeSubmit()));
  reader.Append(EncodeFrame(MakeEvents()));
  const auto first = *reader.Next();
  const auto& submit = std::get<SubmitMessage>(*first);
  EXPECT_EQ(submit.id, 77u);
  EXPECT_EQ(submit.count, 3u);
  EXPECT_EQ(submit.priority, -2);
  EXPECT_EQ(submit.params.seed, 0xfedcba9876543210);
  EXPECT_EQ(submit.params.stop, (std::vector<std::string>{"", "end"}));
  EXPECT_EQ(submit.params.logit_bias.at(0).second, -1.5);
  EXPECT_EQ(submit.prompt_ids, (std::vector<int32_t>{1, 2, 3}));
  const auto second = *reader.Next();
  const auto& batch = std::get<EventsMessage>(*second);
  EXPECT_EQ(batch.events.at(0).token.top.at(1).first, 7);
  EXPECT_EQ(batch.events.at(1).finish, FinishReason::kAborted);
  EXPECT_EQ(batch.stats.kv.prefix_hit_tokens, 64u);
}

void ExpectSame(const StepWork& got, const StepWork& sent) {
  EXPECT_EQ(got.tokens, sent.tokens);
  EXPECT_EQ(got.seconds, sent.seconds);
  EXPECT_EQ(got.least.weight_bytes, sent.least.weight_bytes);
  EXPECT_EQ(got.least.kv_bytes, sent.least.kv_bytes);
  EXPECT_EQ(got.least.flops, sent.least.flops);
  EXPECT_EQ(got.least.int8_ops, sent.least.int8_ops);
  EXPECT_EQ(got.steps, sent.steps);
  EXPECT_EQ(got.exchanged.calls, sent.exchanged.calls);
  EXPECT_EQ(got.exchanged.delays, sent.exchanged.delays);
  EXPECT_EQ(got.exchanged.bytes, sent.exchanged.bytes);
  EXPECT_EQ(got.exchanged.seconds, sent.exchanged.seconds);
}

TEST(Link, CarriesAllThatAnEngineHasDone) {
  const EventsMessage sent = MakeEvents();
  FrameReader reader;
  reader.Append(EncodeFrame(sent));
  const auto message = *reader.Next();
  const EngineStats& got = std::get<EventsMessage>(*message).stats;
  ExpectSame(got.prefill, sent.stats.prefill);
  ExpectSame(got.decode, sent.stats.decode);
  EXPECT_EQ(got.shared_kv_bytes, 21u);
  EXPECT_EQ(got.waited_s, sent.stats.waited_s);
  EXPECT_EQ(got.traffic.calls, 24u);
  EXPECT_EQ(got.traffic.delays, 27u);
  EXPECT_EQ(got.traffic.bytes, 25u);
  EXPECT_EQ(got.traffic.seconds, 26.5);
}

TEST(Link, DividesAStepWithLargeEvents) {
  EventsMessage step;
  step.stats.steps = 7;
  for (uint64_t id = 0; id < 9; ++id) {
    TokenEvent& event = step.events.emplace_back();
    event.request = id;
    event.has_token = true;
    event.token.top.assign(id == 4 ? 1000 : 100, {1, -1.0});
  }
  step.events[6].rated_prompt.assign(3, step.events[0].token);
  step.events[7].pooled.assign(600, 1.0f);
  constexpr size_t kMost = 4000;
  const auto parts = Divide(step, kMost);
  uint64_t next = 0;
  for (const EventsMessage& part : parts) {
    EXPECT_EQ(part.stats.steps, 7u);
    ASSERT_FALSE(part.events.empty());
    const size_t stats_bytes = EncodeFrame(EventsMessage{{}, part.stats}).size();
    const bool is_alone = part.events.size() == 1;
    EXPECT_TRUE(is_alone || EncodeFrame(part).size() - stats_bytes <= kMost) << next;
    for (const TokenEvent& event : part.events) EXPECT_EQ(event.request, next++);
  }
  EXPECT_EQ(next, 9u);
  EXPECT_LT(parts.size(), 8u) << "several at a time";
  EXPECT_EQ(Divide(step, 1 << 20).size(), 1u);
  EXPECT_EQ(Divide(EventsMessage{}, kMost).size(), 1u) << "statistics alone";
}

TEST(Link, PutsFramesTogetherFromSingleBytes) {
  std::string stream;
  for (const LinkMessage& message : OneOfEach()) stream += EncodeFrame(message);
  FrameReader reader;
  size_t messages = 0;
  for (const char byte : stream) {
    reader.Append({&byte, 1});
    auto got = reader.Next();
    ASSERT_TRUE(got);
    messages += got->has_value();
  }
  EXPECT_EQ(messages, OneOfEach().size());
}

TEST(Link, MovesNoMoreBytesThanItTakes) {
  FrameReader reader;
  const std::string frame = EncodeFrame(MakeSubmit());
  size_t appended = 0, messages = 0;
  constexpr size_t kFrames = 20'000;
  for (size_t i = 0; i < kFrames; ++i, appended += frame.size()) reader.Append(frame);
  while (*reader.Next()) ++messages;
  EXPECT_EQ(messages, kFrames);
  EXPECT_LE(reader.moved_bytes(), appended);
}

TEST(Link, RefusesPayloadsThatAreTooShortOrTooLong) {
  for (const LinkMessage& message : OneOfEach()) {
    const std::string frame = EncodeFrame(message);
    const size_t payload = frame.size() - 5;
    for (const size_t length : {payload - 1, payload / 2, size_t{0}, payload + 1}) {
      if (payload == 0 && length != 1) continue;  // a message without fields
      std::string changed = frame.substr(0, 5 + std::min(length, payload));
      changed.resize(5 + length, 'x');
      const auto length32 = static_cast<uint32_t>(length);
      std::memcpy(changed.data(), &length32, sizeof length32);
      FrameReader reader;
      reader.Append(changed);
      EXPECT_FALSE(reader.Next()) << "type " << message.index() << ", " << length << " bytes";
    }
  }
}

TEST(Link, RefusesAbsurdLengthsAndUnknownTypes) {
  FrameReader absurd;
  absurd.Append("\xff\xff\xff\xff\x01");
  EXPECT_FALSE(absurd.Next());
  FrameReader unknown;
  unknown.Append({"\x00\x00\x00\x00\x2a", 5});
  EXPECT_FALSE(unknown.Next());
}

TEST(Link, SurvivesRandomDamage) {
  std::mt19937 random(20261120);
  const auto messages = OneOfEach();
  size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string frame = EncodeFrame(messages[random() % messages.size()]);
    for (int i = 0; i < 3; ++i)
      frame[4 + random() % (frame.size() - 4)] = static_cast<char>(random());
    FrameReader reader;
    reader.Append(frame);
    refused += !reader.Next();
  }
  EXPECT_GT(refused, 0u);  // sanitizers watch the rest
}

TEST(LinkSocket, LosesNothingWhileTheOtherEndDoesNotRead) {
  const auto ends = *MakeLinkPair();
  LinkSocket writer(ends.first), reader(ends.second);
  constexpr uint64_t kMessages = 200'000;  // far more than a socket buffer holds
  for (uint64_t id = 0; id < kMessages; ++id) ASSERT_TRUE(writer.Send(AbortMessage{id}));
  EXPECT_TRUE(writer.has_unsent());
  uint64_t next = 0;
  while (next < kMessages) {
    ASSERT_TRUE(writer.Flush());
    ASSERT_TRUE(reader.Receive());
    for (;;) {
      auto message = reader.Next();
      ASSERT_TRUE(message);
      if (!*message) break;
      ASSERT_EQ(std::get<AbortMessage>(**message).id, next++);
    }
  }
  EXPECT_FALSE(writer.has_unsent());
}

TEST(LinkSocket, SendsFramesOfAllSizesInOrder) {
  const auto ends = *MakeLinkPair();
  LinkSocket writer(ends.first), reader(ends.second);
  std::mt19937 random(20261122);
  uint64_t sent = 0, next = 0;
  while (next < 2000) {
    if (sent < 2000)  // some far above a socket buffer, most far below
      writer.Send(
          ReadyMessage{sent++, 0, 0, std::string(random() % (random() % 8 ? 99 : 999'999), 'x')});
    if (random() % 4 != 0 && sent < 2000) continue;
    ASSERT_TRUE(writer.Flush());
    ASSERT_TRUE(reader.Receive());
    for (auto message = reader.Next(); *message; message = reader.Next())
      ASSERT_EQ(std::get<ReadyMessage>(**message).max_model_len, next++);
  }
}

TEST(LinkSocket, ReportsTheOtherEndsClosing) {
  const auto ends = *MakeLinkPair();
  LinkSocket left(ends.first);
  {
    LinkSocket right(ends.second);
    right.Send(AbortMessage{3});
    EXPECT_TRUE(left.Receive());
  }
  EXPECT_FALSE(left.Receive());
  EXPECT_EQ(std::get<AbortMessage>(**left.Next()).id, 3u);
  left.Send(AbortMessage{1});
  EXPECT_FALSE(left.Send(AbortMessage{2}));
}

}  // namespace
}  // namespace pinion
