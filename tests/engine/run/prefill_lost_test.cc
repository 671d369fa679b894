// Answers must not depend on an engine that is lost or that differs from this one.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "engine/run/engine.h"
#include "tests/engine/run/split_engines.h"

namespace pinion {
namespace {

TEST(PrefillSplit, AnEngineThatIsLostIsDoneWithoutAndTakenBack) {
  const EngineOptions options = SplitOptions("preset:tiny");
  const std::vector<Request> requests = Prompts(20);
  const Outputs alone = AloneAnswers(options, requests);
  const std::string address = SocketPath("lost");
  auto other = std::make_unique<Neighbour>(WithRole(options, Role::kPrefill, address));
  const auto engine = StartDecoding(WithRole(options, Role::kDecode, address));
  other->Stop(true);  // with orders that it does not look at
  for (const Request& request : requests) ASSERT_TRUE(engine->Add(request));
  other.reset();
  Outputs outputs;
  StepAll(*engine, outputs);
  EXPECT_EQ(outputs, alone);
  EXPECT_GT(engine->stats().transfer.failed, 0u);
  EXPECT_FALSE(IsUp(*engine));
  engine->DropPrefixCache();
  const uint64_t ordered = engine->stats().transfer.orders;
  EXPECT_EQ(AnswersOf(*engine, requests), alone) << "all by itself";
  EXPECT_EQ(engine->stats().transfer.orders, ordered);

  other = std::make_unique<Neighbour>(WithRole(options, Role::kPrefill, address));
  while (!IsUp(*engine)) std::this_thread::yield();
  engine->DropPrefixCache();
  EXPECT_EQ(AnswersOf(*engine, requests), alone);
  EXPECT_GT(engine->stats().transfer.orders, ordered);
}

TEST(PrefillSplit, AnAbortedPromptIsWantedNoMore) {
  const EngineOptions options = SplitOptions("preset:tiny");
  const std::string address = SocketPath("abort");
  Neighbour other(WithRole(options, Role::kPrefill, address));
  const auto engine = StartDecoding(WithRole(options, Role::kDecode, address));
  other.Stop(true);
  std::vector<Request> requests = Prompts(8);
  for (const Request& request : requests) ASSERT_TRUE(engine->Add(request));
  for (const Request& request : requests) engine->Abort(request.id);
  std::vector<TokenEvent> events;
  engine->Step(events);
  EXPECT_EQ(events.size(), requests.size());
  for (const TokenEvent& event : events) EXPECT_EQ(event.finish, FinishReason::kAborted);
  EXPECT_TRUE(engine->idle());
  other.Stop(false);
  // The orders of those that were aborted leave nothing behind.
  EXPECT_EQ(AnswersOf(*engine, requests), AloneAnswers(options, requests));
  EXPECT_EQ(other.End().blocks_used, 0u);
}

TEST(PrefillSplit, EnginesOfDifferentModelsShareNothing) {
  const EngineOptions options = SplitOptions("preset:tiny");
  const std::string address = SocketPath("differ");
  EngineOptions prefill = WithRole(options, Role::kPrefill, address);
  prefill.seed = 1;  // other weights
  Neighbour other(prefill);
  const auto engine = Start(WithRole(options, Role::kDecode, address));
  std::string reason;
  while (reason.find("differ") == reason.npos) reason = PeerInfo(*engine).Find("reason")->string();
  EXPECT_NE(reason.find("the model is"), reason.npos) << reason;
  const std::vector<Request> requests = Prompts(8);
  EXPECT_EQ(AnswersOf(*engine, requests), AloneAnswers(options, requests));
  EXPECT_EQ(other.End().transfer.orders, 0u);
}

// A rope that is chosen by the length that is served: 64 tokens in training.
TEST(PrefillSplit, EnginesThatTurnKeysDifferentlyShareNothing) {
  EngineOptions options = SplitOptions("phi3-longrope");
  const std::string folder = StrCat(::testing::TempDir(), "pinion-", getpid(), "-longrope");
  std::filesystem::copy(options.model, folder);
  Json config = Json::Parse(ReadFile(folder + "/config.json", 1 << 20).value()).value();
  config.Set("original_max_position_embeddings", 64);
  std::ofstream(folder + "/config.json") << config.Dump();
  options.model = folder;
  const std::string address = SocketPath("ropes");
  EngineOptions prefill = WithRole(options, Role::kPrefill, address);
  prefill.max_model_len = 64;
  Neighbour other(prefill);
  const auto engine = Start(WithRole(options, Role::kDecode, address));
  std::string reason;
  while (reason.find("differ") == reason.npos && !IsUp(*engine)) {
    const Json peer = PeerInfo(*engine);
    if (const Json* why = peer.Find("reason")) reason = why->string();
  }
  EXPECT_NE(reason.find("--max-model-len is up to 64 in the one that computes prompts and above 64 "
                        "in the one that asks"),
            reason.npos)
      << reason;
  const std::vector<Request> requests = Prompts(6);
  EXPECT_EQ(AnswersOf(*engine, requests), AloneAnswers(options, requests));
  EXPECT_EQ(other.End().transfer.orders, 0u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace pinion
