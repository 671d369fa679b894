// Peers that are there and say nothing: a process that is stopped keeps its connections.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/descriptor.h"
#include "engine/base/strings.h"
#include "engine/transfer/connection.h"
#include "engine/transfer/prefill_client.h"
#include "engine/transfer/prefill_server.h"

namespace pinion {
namespace {

Address QuietAddress(const char* name) {
  Address address;
  address.path = StrCat(::testing::TempDir(), "pinion-", getpid(), "-quiet-", name);
  return address;
}

PrefillServer::Options QuietServer(const Address& address, double sign_of_life_s) {
  PrefillServer::Options options;
  options.listen = address;
  options.most_tokens = 100;
  options.sign_of_life_s = sign_of_life_s;
  return options;
}

std::unique_ptr<PrefillClient> Listener(const Address& address, double silence_s) {
  PrefillClient::Options options;
  options.from = {address};
  options.block_bytes = 10;
  options.retry_s = 0.01;
  options.silence_s = silence_s;
  return PrefillClient::Start(std::move(options));
}

// An engine in a process of its own, which answers every order at once. It is made while this
// process has one thread, and ends with it.
class OtherProcess {
 public:
  explicit OtherProcess(const Address& address) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto server = PrefillServer::Start(QuietServer(address, 0.01));
    if (!server) _exit(1);
    for (;;) {
      pollfd wait{(*server)->wake_fd(), POLLIN, 0};
      poll(&wait, 1, 1000);
      while (const auto arrived = (*server)->Next())
        if (arrived->order) (*server)->Send(arrived->from, DoneMessage{arrived->order->id, "", 0});
    }
  }
  ~OtherProcess() {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  void Signal(int signal) const { EXPECT_EQ(kill(pid_, signal), 0); }
  void Stop() const {
    Signal(SIGSTOP);
    EXPECT_EQ(waitpid(pid_, nullptr, WUNTRACED), pid_);
  }

 private:
  const pid_t pid_;
};

// How an order of this number ends; none is made while no engine is up.
std::string EndOf(PrefillClient& client, uint64_t id) {
  OrderMessage order;
  order.id = id;
  order.tokens = {1, 2, 3};
  if (!client.Order(order)) return "not ordered";
  constexpr int kPatienceMs = 20'000;  // only bounds a failure
  pollfd wait{client.wake_fd(), POLLIN, 0};
  poll(&wait, 1, kPatienceMs);
  const auto event = client.Next();
  return event ? std::get<DoneMessage>(*event).error : "none";
}

TEST(TransferSilence, OrdersOfAStoppedEngineEndAndItIsUsedAgainOnceItAnswers) {
  const Address address = QuietAddress("stopped");
  const OtherProcess other(address);
  const auto client = Listener(address, 0.4);
  uint64_t id = 0;
  const auto until_answered = [&] {
    while (!EndOf(*client, ++id).empty()) std::this_thread::yield();
  };
  until_answered();
  other.Stop();
  // A busy machine may have noticed its silence before there is an order.
  const std::string end = EndOf(*client, ++id);
  if (end != "not ordered") {
    EXPECT_NE(end.find("no sign of life for 0.4 s"), std::string::npos) << end;
    EXPECT_NE(end.find(address.Text()), std::string::npos) << end;
  }
  EXPECT_FALSE(client->any_up());
  EXPECT_FALSE(client->peers()[0].reason.empty());
  other.Signal(SIGCONT);
  until_answered();
}

// Keeps an order of number `id` for several times the silence that is allowed; its end.
std::string EndOfLongOrder(PrefillServer& server, PrefillClient& client, uint64_t id) {
  while (!client.any_up()) std::this_thread::yield();
  std::thread engine([&] {
    std::optional<PrefillServer::Arrived> arrived;
    while (!arrived || !arrived->order || arrived->order->id != id) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      arrived = server.Next();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server.Send(arrived->from, DoneMessage{id, "", 0});
  });
  std::string end = "not ordered";
  while (end == "not ordered") end = EndOf(client, id);
  engine.join();
  return end;
}

TEST(TransferSilence, AnEngineThatOnlySaysThatItLivesIsNotLost) {
  const Address address = QuietAddress("lives");
  const auto server = PrefillServer::Start(QuietServer(address, 0.005)).value();
  const auto client = Listener(address, 0.1);
  // A busy machine may delay the signs, but not every time.
  std::string end = "none";
  for (uint64_t id = 1; !end.empty() && id <= 20; ++id) end = EndOfLongOrder(*server, *client, id);
  EXPECT_EQ(end, "");
}

// One end of a connection that closes if it is silent for 0.1 s; the other end is a descriptor.
struct End {
  explicit End(double send_seconds = Connection::kSendSeconds) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    connection = std::make_shared<Connection>(
        Connection::Socket(io, transfer_asio::generic::stream_protocol(AF_UNIX, SOCK_STREAM),
                           ends[0]),
        send_seconds);
    other.emplace(ends[1]);
    connection->CloseIfSilent(0.1);
  }
  // The next message once it has come, or none if the connection has ended.
  std::optional<TransferMessage> Receive() {
    std::optional<TransferMessage> message;
    bool is_over = false;
    transfer_asio::co_spawn(
        io,
        [this, &message, &is_over]() -> transfer_asio::awaitable<void> {
          message = co_await connection->Receive(1000);
          is_over = true;
        },
        transfer_asio::detached);
    while (!is_over) io.run_one();
    return message;
  }

  transfer_asio::io_context io{1};
  std::shared_ptr<Connection> connection;
  std::optional<Descriptor> other;
};

TEST(TransferSilence, NothingIsSilentWhileNobodyReads) {
  End end;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  end.io.run_until(until);  // an engine that does not take what came before
  EXPECT_TRUE(WriteAll(end.other->get(), EncodeTransfer(CancelMessage{7})));
  const auto message = end.Receive();
  ASSERT_TRUE(message) << end.connection->error();
  EXPECT_EQ(std::get<CancelMessage>(*message).id, 7u);
}

TEST(TransferSilence, AMessageOfASlowLinkIsHeardWhileItComes) {
  const std::string frame = EncodeTransfer(StateMessage{7, std::string(50, 's')});
  std::string error = "none";
  for (int attempt = 0; !error.empty() && attempt < 20; ++attempt) {  // as above
    End end;
    std::thread link([&] {
      for (const char byte : frame) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        if (send(end.other->get(), &byte, 1, MSG_NOSIGNAL) != 1) return;
      }
    });
    const auto message = end.Receive();
    link.join();
    error = end.connection->error();
    if (message) {
      EXPECT_EQ(std::get<StateMessage>(*message).image.size(), 50u);
    }
  }
  EXPECT_EQ(error, "");
}

// The message takes several times as long as any part of it may.
TEST(TransferSilence, AMessageOverASlowLinkIsSentAsLongAsItGoesOn) {
  const std::string frame = EncodeTransfer(StateMessage{7, std::string(4 << 20, 's')});
  size_t got = 0;
  for (int attempt = 0; got != frame.size() && attempt < 20; ++attempt) {  // as above
    End end(0.1);
    end.connection->Send(frame);
    std::thread link([&] {
      std::vector<char> part(frame.size() / 64);
      got = 0;
      ssize_t count = 0;
      while ((count = read(end.other->get(), part.data(), part.size())) > 0) {
        got += static_cast<size_t>(count);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    while (*end.connection->unsent() > 0) end.io.run_one();
    end.connection->Close();
    end.io.poll();
    link.join();
  }
  EXPECT_EQ(got, frame.size());
}

}  // namespace
}  // namespace pinion
