// Orders and blocks of a program that was let in and means no good.

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/check.h"
#include "engine/run/prefill_role.h"
#include "engine/run/start.h"
#include "engine/transfer/prefill_client.h"
#include "engine/transfer/prefill_server.h"
#include "tests/engine/run/split_engines.h"

namespace pinion {
namespace {

// Such a program, which knows what a good one does.
std::unique_ptr<PrefillClient> ClientOf(const EngineOptions& options, const std::string& address) {
  auto model = StartModel(WithRole(options, Role::kDecode, address));
  CHECK(model) << model.error().message;
  PrefillClient::Options client;
  client.from = {*ParseAddress(address, "")};
  client.facts = FactsOfTransfer(*model);
  auto started = PrefillClient::Start(std::move(client));
  while (!started->any_up()) std::this_thread::yield();
  return started;
}

PrefillClient::Event AwaitEvent(PrefillClient& client) {
  for (;;) {
    if (auto event = client.Next()) return *std::move(event);
    std::this_thread::yield();
  }
}

TEST(PrefillSplit, OrdersThatCannotBeComputedAreAnsweredWithTheReason) {
  const EngineOptions options = SplitOptions("preset:tiny");
  const std::string address = SocketPath("orders");
  Neighbour other(WithRole(options, Role::kPrefill, address));
  const auto client = ClientOf(options, address);
  const std::pair<std::vector<int32_t>, const char*> cases[] = {
      {{}, "empty"},
      {{1, -1, 2}, "token -1 is outside the vocabulary"},
      {{1, 1 << 20}, "token 1048576 is outside the vocabulary"},
      {std::vector<int32_t>(160, 1), "the prompt has 160 tokens"}};
  uint64_t id = 0;
  for (const auto& [tokens, said] : cases) {
    OrderMessage order;
    order.id = ++id;
    order.tokens = tokens;
    ASSERT_TRUE(client->Order(order));
    const auto done = std::get<DoneMessage>(AwaitEvent(*client));
    EXPECT_NE(done.error.find(said), std::string::npos) << done.error;
  }
  // Nothing is wanted of a prompt that the other engine has, or that has no full block.
  for (const auto& [first, tokens] : {std::pair{1000u, 40}, {0u, 5}}) {
    OrderMessage order;
    order.id = ++id;
    order.first_block = first;
    order.tokens.assign(static_cast<size_t>(tokens), 7);
    ASSERT_TRUE(client->Order(order));
    EXPECT_EQ(std::get<DoneMessage>(AwaitEvent(*client)).error, "");
  }
  EXPECT_EQ(other.End().blocks_used, 0u);
}

// Beam searches have the highest ids that there are.
TEST(PrefillSplit, AnEngineForPromptsAnswersItsOwnRequestsOfAnyIds) {
  const EngineOptions options = SplitOptions("preset:tiny");
  std::vector<Request> requests = Prompts(12);
  for (size_t i = 0; i < requests.size(); i += 2) requests[i].id |= uint64_t{1} << 63;
  const Outputs alone = AloneAnswers(options, requests);
  const std::string address = SocketPath("ids");
  const auto engine = Start(WithRole(options, Role::kPrefill, address));
  for (const Request& request : requests) ASSERT_TRUE(engine->Add(request));
  const auto client = ClientOf(options, address);
  for (uint64_t id = 1; id <= 4; ++id) {  // which the same steps compute
    OrderMessage order;
    order.id = id;
    order.tokens.assign(60, static_cast<int32_t>(id));
    ASSERT_TRUE(client->Order(order));
  }
  Outputs outputs;
  StepAll(*engine, outputs);
  EXPECT_EQ(outputs, alone);
  EXPECT_EQ(engine->stats().transfer.orders, 4u);
}

TEST(PrefillSplit, BlocksOfAnotherPromptAreNotTaken) {
  const EngineOptions options = SplitOptions("preset:tiny");
  const Request request = Prompts(8)[6];
  const Outputs alone = AloneAnswers(options, {request});
  const size_t bytes = size_t{kSplitBlock} * 2 * 2 * 16 * 2 * 4;  // of a block
  // As floats, small numbers: the first block is taken, and an answer comes of it.
  const std::string whole(bytes, '<'), half(bytes / 2, '<');
  const auto all = static_cast<uint32_t>(bytes);
  const BlocksMessage good{0, 0, 0, 0, all, whole},
      cases[] = {{0, 1, 0, 0, all, whole},
                 {0, 0, 7, 0, all, whole},
                 {0, 0, 0xffffffff, 0, all, whole},
                 {0, 0, 6, 0, all, whole + whole},
                 {0, 0, 1, 0, all, whole + "x"},
                 {0, 0, 1, 0, all, "x"},
                 {0, 0, 1, 0, all, std::string(8 * bytes, 'x')},
                 {0, 0, 0, 0, all, whole},  // once more
                 {0, 0, 1, all / 2, all / 2, half},
                 {0, 0, 0, all / 2, all / 2, half},
                 {0, 0, 1, 0, 0, whole},
                 {0, 0, 1, 0, 2 * all, whole + whole},
                 {0, 0, 0, all, 1, "x"},
                 {0, 0, 1, 0xffffffff, 1, "x"}};
  for (BlocksMessage blocks : cases) {
    const std::string address = SocketPath("blocks");
    PrefillServer::Options served;
    served.listen = *ParseAddress(address, "");
    served.most_tokens = 1000;  // no facts: everybody may order
    const auto server = PrefillServer::Start(std::move(served)).value();
    const auto engine = StartDecoding(WithRole(options, Role::kDecode, address));
    ASSERT_TRUE(engine->Add(request));
    std::optional<PrefillServer::Arrived> arrived;
    while (!(arrived = server->Next())) std::this_thread::yield();
    const uint64_t id = arrived->order->id;
    blocks.id = id;
    BlocksMessage first = good;
    first.id = id;
    server->Send(arrived->from, first);
    server->Send(arrived->from, blocks);
    server->Send(arrived->from, StateMessage{id, "no model has states of this size"});
    server->Send(arrived->from, DoneMessage{id, "", 1000});
    Outputs outputs;
    StepAll(*engine, outputs);
    EXPECT_EQ(outputs.at(request.id).size(), alone.at(request.id).size())
        << blocks.table << ' ' << blocks.first << ' ' << blocks.at << ' ' << blocks.bytes;
    EXPECT_EQ(engine->stats().transfer.failed, 1u);
    EXPECT_EQ(engine->stats().transfer.taken_tokens, size_t{kSplitBlock}) << "the first block";
  }
}

}  // namespace
}  // namespace pinion
