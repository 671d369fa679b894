// The network between engines, without engines: what strangers and broken peers may do to it.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "engine/base/descriptor.h"
#include "engine/base/strings.h"
#include "engine/transfer/prefill_client.h"
#include "engine/transfer/prefill_server.h"

namespace pinion {
namespace {

const Facts kFacts = {{"model", "a"}, {"-tp", "1"}};

Address OwnAddress(const char* name) {
  Address address;
  address.path = StrCat(::testing::TempDir(), "pinion-", getpid(), "-", name);
  return address;
}

constexpr double kNever = 1e6;

// Without signs of life, of which a busy machine might come too late.
std::unique_ptr<PrefillServer> Listen(const Address& address, double sign_of_life_s = kNever) {
  PrefillServer::Options options;
  options.listen = address;
  options.sign_of_life_s = sign_of_life_s;
  options.facts = kFacts;
  options.most_tokens = 100;
  return PrefillServer::Start(std::move(options)).value();
}

std::unique_ptr<PrefillClient> Ask(const Address& address, const Facts& facts = kFacts,
                                   double silence_s = kNever) {
  PrefillClient::Options options;
  options.from = {address};
  options.facts = facts;
  options.block_bytes = 10;
  options.retry_s = 0.01;
  options.silence_s = silence_s;
  return PrefillClient::Start(std::move(options));
}

// Waits as an engine does.
template <typename Net>
auto Await(Net& net) {
  for (;;) {
    if (auto next = net.Next()) return *std::move(next);
    pollfd wait{net.wake_fd(), POLLIN, 0};
    poll(&wait, 1, 1000);
  }
}

void AwaitUp(const PrefillClient& client, bool up = true) {
  while (client.any_up() != up) std::this_thread::yield();
}

OrderMessage OrderOf(uint64_t id) {
  OrderMessage order;
  order.id = id;
  order.tokens = {1, 2, static_cast<int32_t>(id)};
  return order;
}

TEST(Transfer, AnOrderIsAnsweredByItsOwnBlocks) {
  const Address address = OwnAddress("answer");
  const auto server = Listen(address);
  const auto client = Ask(address);
  AwaitUp(*client);
  ASSERT_TRUE(client->Order(OrderOf(5)));
  const auto arrived = Await(*server);
  const auto& from = arrived.from;
  EXPECT_EQ(arrived.order->tokens, OrderOf(5).tokens);
  server->Send(from, BlocksMessage{5, 0, 3, 0, 10, "0123456789"});
  server->Send(from, StateMessage{5, "state"});
  server->Send(from, DoneMessage{5, "", 2});
  server->Send(from, StateMessage{5, "behind the end: nobody's"});
  EXPECT_EQ(std::get<BlocksMessage>(Await(*client)).images, "0123456789");
  EXPECT_EQ(std::get<StateMessage>(Await(*client)).image, "state");
  EXPECT_EQ(std::get<DoneMessage>(Await(*client)).cached_tokens, 2u);
  while (*from.unsent > 0) std::this_thread::yield();
  EXPECT_FALSE(client->Next());
}

TEST(Transfer, OrdersGoToTheEngineWithTheFewestTokensLeft) {
  const Address first = OwnAddress("first"), second = OwnAddress("second");
  const auto one = Listen(first), two = Listen(second);
  PrefillClient::Options options;
  options.from = {first, second};
  options.facts = kFacts;
  const auto client = PrefillClient::Start(std::move(options));
  const auto all_up = [&] {
    for (const auto& peer : client->peers())
      if (!peer.up) return false;
    return true;
  };
  while (!all_up()) std::this_thread::yield();
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(client->Order(OrderOf(id)));
  for (const auto* server : {&one, &two}) {
    Await(**server);
    Await(**server);
  }
}

TEST(Transfer, CancelledOrdersAndThoseOfALostPeerArriveAsSuch) {
  const Address address = OwnAddress("cancel");
  const auto server = Listen(address);
  auto client = Ask(address);
  AwaitUp(*client);
  ASSERT_TRUE(client->Order(OrderOf(1)));
  ASSERT_TRUE(client->Order(OrderOf(2)));
  const uint64_t first = Await(*server).from.id, second = Await(*server).from.id;
  client->Cancel(1);
  const auto cancelled = Await(*server);
  EXPECT_EQ(cancelled.from.id, first);
  EXPECT_FALSE(cancelled.order);
  client.reset();
  const auto lost = Await(*server);
  EXPECT_EQ(lost.from.id, second);
  EXPECT_FALSE(lost.order);
}

TEST(Transfer, OrdersOfALostServerAreDoneWithAnErrorAndTheNextServerIsFound) {
  const Address address = OwnAddress("lost");
  auto server = Listen(address);
  const auto client = Ask(address);
  AwaitUp(*client);
  ASSERT_TRUE(client->Order(OrderOf(1)));
  Await(*server);
  server.reset();
  const auto done = std::get<DoneMessage>(Await(*client));
  EXPECT_EQ(done.id, 1u);
  EXPECT_NE(done.error.find(address.Text()), std::string::npos) << done.error;
  EXPECT_FALSE(client->Order(OrderOf(2)));
  EXPECT_FALSE(client->peers()[0].reason.empty());
  server = Listen(address);
  AwaitUp(*client);
  EXPECT_TRUE(client->Order(OrderOf(3)));
  EXPECT_EQ(Await(*server).order->id, 3u);
}

TEST(Transfer, APeerThatDiffersIsToldTheDifference) {
  const Address address = OwnAddress("differ");
  const auto server = Listen(address);
  for (const Facts& facts : {Facts{{"model", "b"}, {"-tp", "1"}}, Facts{{"model", "a"}}, Facts{}}) {
    const auto client = Ask(address, facts);
    std::string reason;
    while (reason.find("differ") == reason.npos && !client->any_up())
      reason = client->peers()[0].reason;
    EXPECT_FALSE(client->any_up());
    EXPECT_NE(reason.find(facts.size() == 1 ? "-tp is 1" : "model is a"), reason.npos) << reason;
  }
}

// A peer that speaks bytes.
class Stranger {
 public:
  explicit Stranger(const Address& address) : socket_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    address.path.copy(to.sun_path, sizeof to.sun_path - 1);
    const timeval patience{20, 0};  // only bounds a failure
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  void Say(const std::string& bytes) { EXPECT_TRUE(WriteAll(socket_.get(), bytes)); }
  // Everything until the server closes, or that it does not.
  std::string Hear() {
    std::string heard;
    char chunk[256];
    ssize_t got = 0;
    while ((got = read(socket_.get(), chunk, sizeof chunk)) > 0)
      heard.append(chunk, static_cast<size_t>(got));
    const bool is_open = got < 0 && errno == EAGAIN;
    return is_open ? heard + " and stays" : heard;
  }

 private:
  Descriptor socket_;
};

std::string Frame(uint32_t bytes, uint32_t type, const std::string& payload) {
  std::string frame(FrameHeader::kBytes, '\0');
  const FrameHeader header{bytes, type};
  std::memcpy(frame.data(), &header, sizeof header);
  return frame + payload;
}

TEST(Transfer, StrangersAreSentAwayAndHarmNobody) {
  const Address address = OwnAddress("strangers");
  const auto server = Listen(address);
  const auto client = Ask(address);
  AwaitUp(*client);
  const std::string hello = EncodeTransfer(HelloMessage{kFacts});
  const std::string welcome = EncodeTransfer(WelcomeMessage{"", 100});
  const uint32_t mark = DecodeHeader(hello.data()).type & 0xffff0000u;
  const std::string order = EncodeTransfer(OrderOf(1));
  const std::pair<std::string, std::string> cases[] = {
      {"GET / HTTP/1.1\r\nHost: here\r\n\r\n", ""},
      {std::string(64, '\xff'), ""},
      {Frame(0xffffffff, mark, ""), ""},
      {Frame(4, mark | 77, "????"), ""},
      {order, ""},  // without a hello
      {hello + Frame(1 << 30, mark | 1, ""), welcome},
      {hello + hello, welcome},
      {hello + order + order, welcome},  // two of one number
      {hello + EncodeTransfer(DoneMessage{1, "", 0}), welcome},
  };
  for (const auto& [said, answer] : cases) {
    Stranger stranger(address);
    stranger.Say(said);
    EXPECT_EQ(stranger.Hear(), answer) << said.substr(0, 40);
  }
  {  // leaves in the middle of a message
    Stranger stranger(address);
    stranger.Say(hello + order.substr(0, order.size() - 1));
  }
  ASSERT_TRUE(client->Order(OrderOf(9)));
  for (;;) {  // the order that came twice has arrived once, and gone
    const auto arrived = Await(*server);
    if (!arrived.order) continue;
    if (arrived.order->id == 9) break;
    EXPECT_EQ(arrived.order->id, 1u);
  }
  while (server->connections() > 1) std::this_thread::yield();  // until they are gone
}

TEST(Transfer, AnOrderOfMoreTokensThanItsReceiverTakesIsNotSent) {
  const Address address = OwnAddress("more");
  const auto server = Listen(address);
  const auto client = Ask(address);
  AwaitUp(*client);
  OrderMessage order = OrderOf(1);
  order.tokens.resize(101);
  EXPECT_FALSE(client->Order(order));
  order.tokens.resize(100);
  EXPECT_TRUE(client->Order(order));
  EXPECT_EQ(Await(*server).order->tokens.size(), 100u);
}

TEST(Transfer, NothingButALeftOverSocketMakesWay) {
  const Address address = OwnAddress("left");
  {
    std::ofstream file(address.path);
    file << "somebody's";
  }
  PrefillServer::Options options;
  options.listen = address;
  EXPECT_FALSE(PrefillServer::Start(options));
  EXPECT_TRUE(std::filesystem::is_regular_file(address.path));
  std::filesystem::remove(address.path);
  const auto server = Listen(address);
  EXPECT_FALSE(PrefillServer::Start(options)) << "it is in use";
  const auto client = Ask(address);
  AwaitUp(*client);
}

TEST(Transfer, AnOrderOfMoreTokensThanAModelTakesEndsTheConnection) {
  const Address address = OwnAddress("long");
  const auto server = Listen(address);
  Stranger stranger(address);
  OrderMessage order = OrderOf(1);
  order.tokens.resize(200'000);
  stranger.Say(EncodeTransfer(HelloMessage{kFacts}));
  const std::string frame = EncodeTransfer(order);
  stranger.Say(frame.substr(0, 1000));
  EXPECT_EQ(stranger.Hear(), EncodeTransfer(WelcomeMessage{"", 100}));
  EXPECT_FALSE(server->has_next());
}

}  // namespace
}  // namespace pinion
