#include "engine/transfer/prefill_client.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/host/affinity.h"
#include "engine/transfer/connection.h"
#include "engine/transfer/inbox.h"

namespace pinion {
namespace {

namespace asio = transfer_asio;
using boost::system::error_code;

constexpr double kConnectSeconds = 3;
// Of arrived blocks that the engine has not taken yet; beyond it nothing is read.
constexpr size_t kMostUntakenBlocks = size_t{256} << 20;
constexpr size_t kMessageBytes = size_t{16} << 20;  // PrefillService's blocks, or a single one

class AsioPrefillClient final : public PrefillClient {
 public:
  explicit AsioPrefillClient(Options options) : options_(std::move(options)) {
    for (const Address& address : options_.from)
      peers_.push_back({.address = address, .reason = "not connected yet"});
    for (size_t i = 0; i < peers_.size(); ++i)
      asio::co_spawn(
          io_, [this, i] { return Keep(i); }, asio::detached);
    thread_ = std::thread([this] {
      if (!options_.cpus.empty()) static_cast<void>(SetThreadAffinity(options_.cpus));
      io_.run();
    });
  }
  ~AsioPrefillClient() override {
    io_.stop();
    thread_.join();
    for (PeerState& peer : peers_) peer.connection.reset();  // its socket belongs to io_
  }

  bool Order(const OrderMessage& order) override {
    const std::lock_guard lock(mutex_);
    PeerState* best = nullptr;
    for (PeerState& peer : peers_)
      if (peer.connection && order.tokens.size() <= peer.most_tokens &&
          (!best || peer.tokens < best->tokens))
        best = &peer;
    if (!best) return false;
    best->tokens += order.tokens.size();
    best->orders[order.id] = order.tokens.size();
    Post(*best, order);
    return true;
  }

  void Cancel(uint64_t id) override {
    const std::lock_guard lock(mutex_);
    for (PeerState& peer : peers_)
      if (Forget(id, peer)) Post(peer, CancelMessage{id});
  }

  bool any_up() const override {
    const std::lock_guard lock(mutex_);
    return std::any_of(peers_.begin(), peers_.end(),
                       [](const PeerState& peer) { return peer.connection != nullptr; });
  }

  std::optional<Event> Next() override { return inbox_.Pop(); }
  bool has_next() const override { return !inbox_.empty(); }
  int wake_fd() const override { return inbox_.fd(); }

  std::vector<Peer> peers() const override {
    const std::lock_guard lock(mutex_);
    std::vector<Peer> all;
    for (const PeerState& peer : peers_)
      all.push_back({peer.address.Text(), peer.connection != nullptr, peer.reason});
    return all;
  }

 private:
  struct PeerState {
    Address address;
    std::string reason;
    std::shared_ptr<Connection> connection = {};  // while it is up
    std::map<uint64_t, size_t> orders = {};       // that are not done, with their tokens
    size_t tokens = 0;                            // of all of them
    size_t most_tokens = 0;                       // that it takes in an order
  };

  static bool Forget(uint64_t id, PeerState& peer) {
    const auto found = peer.orders.find(id);
    if (found == peer.orders.end()) return false;
    peer.tokens -= found->second;
    peer.orders.erase(found);
    return true;
  }

  void Post(const PeerState& peer, const TransferMessage& message) {
    if (!peer.connection) return;
    asio::post(io_, [connection = peer.connection, frame = EncodeTransfer(message)]() mutable {
      connection->Send(std::move(frame));
    });
  }

  // Connects again and again. A reason is said once.
  asio::awaitable<void> Keep(size_t index) {
    std::string said;
    for (;;) {
      std::string reason;
      const bool was_up = co_await Talk(index, reason);
      if (was_up || reason != said)
        LogWarning(StrCat(was_up ? "lost" : "cannot use", " the engine at ",
                          options_.from[index].Text(), " that computes prompts: ", reason,
                          "; this engine computes them until it is there"));
      said = reason;
      asio::steady_timer pause(io_, TransferSeconds(options_.retry_s));
      co_await pause.async_wait(kTransferAwait);
    }
  }

  // One connection, from its begin to its end; whether it could be used.
  asio::awaitable<bool> Talk(size_t index, std::string& reason) {
    // Shared with the timer's handler, which may run last.
    const auto socket = std::make_shared<Connection::Socket>(io_);
    co_await Connect(options_.from[index], socket, reason);
    if (!reason.empty()) {
      Note(index, reason);
      co_return false;
    }
    SetUpSocket(*socket);
    auto connection = std::make_shared<Connection>(std::move(*socket));
    connection->Send(EncodeTransfer(HelloMessage{options_.facts}));
    connection->CloseAfter(kConnectSeconds);
    const auto first = co_await connection->Receive(kMessageBytes);
    connection->KeepOpen();
    const auto* welcome = first ? std::get_if<WelcomeMessage>(&*first) : nullptr;
    if (!welcome || !welcome->refusal.empty()) {
      reason = welcome                       ? welcome->refusal
               : connection->error().empty() ? "it closed the connection"
                                             : connection->error();
      connection->Close();
      Note(index, reason);
      co_return false;
    }
    LogInfo(StrCat("prompts are computed by the engine at ", options_.from[index].Text()));
    SetUp(index, connection, welcome->most_tokens);
    connection->CloseIfSilent(options_.silence_s);
    co_await Read(index, connection);
    reason = connection->error().empty() ? "it closed the connection" : connection->error();
    connection->Close();
    SetDown(index, reason);
    co_return true;
  }

  // `reason` stays empty if it succeeds.
  asio::awaitable<void> Connect(const Address& address, std::shared_ptr<Connection::Socket> socket,
                                std::string& reason) {
    asio::steady_timer limit(io_, TransferSeconds(kConnectSeconds));
    limit.async_wait([socket](error_code error) {
      error_code ignored;
      if (!error) socket->close(ignored);
    });
    error_code error;
    if (address.is_unix()) {
      const asio::local::stream_protocol::endpoint endpoint(address.path);
      std::tie(error) = co_await socket->async_connect(endpoint, kTransferAwait);
    } else {
      asio::ip::tcp::resolver resolver(io_);
      auto [unresolved, found] =
          co_await resolver.async_resolve(address.host, address.port, kTransferAwait);
      error = unresolved;
      for (const auto& entry : found) {
        if (limit.expiry() <= asio::steady_timer::clock_type::now()) break;
        error_code ignored;
        socket->close(ignored);
        std::tie(error) = co_await socket->async_connect(entry.endpoint(), kTransferAwait);
        if (!error) break;
      }
    }
    limit.cancel();
    if (error) reason = error == asio::error::operation_aborted ? "no answer" : error.message();
  }

  asio::awaitable<void> Read(size_t index, std::shared_ptr<Connection> connection) {
    const size_t most =
        kMessageBytes + std::max(options_.block_bytes, options_.state_bytes) + (64 << 10);
    while (auto message = co_await connection->Receive(most)) {
      if (!Take(index, std::move(*message))) co_return;
      while (inbox_.bytes() > kMostUntakenBlocks) {
        asio::steady_timer pause(io_, TransferSeconds(0.002));
        co_await pause.async_wait(kTransferAwait);
      }
    }
  }

  // Answers to orders that are not known any more are dropped. False: it is not an answer.
  bool Take(size_t index, TransferMessage message) {
    const auto known = [&](uint64_t id) {
      const std::lock_guard lock(mutex_);
      return peers_[index].orders.contains(id);
    };
    if (auto* blocks = std::get_if<BlocksMessage>(&message)) {
      const size_t bytes = blocks->images.size();
      if (known(blocks->id)) inbox_.Push(std::move(*blocks), bytes);
    } else if (auto* state = std::get_if<StateMessage>(&message)) {
      const size_t bytes = state->image.size();
      if (known(state->id)) inbox_.Push(std::move(*state), bytes);
    } else if (auto* done = std::get_if<DoneMessage>(&message)) {
      const std::lock_guard lock(mutex_);
      if (Forget(done->id, peers_[index])) inbox_.Push(std::move(*done));
    } else {
      return std::holds_alternative<AliveMessage>(message);
    }
    return true;
  }

  void Note(size_t index, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    peers_[index].reason = reason;
  }

  void SetUp(size_t index, std::shared_ptr<Connection> connection, size_t most_tokens) {
    const std::lock_guard lock(mutex_);
    peers_[index].most_tokens = most_tokens;
    peers_[index].connection = std::move(connection);
    peers_[index].reason.clear();
  }

  void SetDown(size_t index, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    PeerState& peer = peers_[index];
    peer.connection.reset();
    peer.reason = reason;
    for (const auto& [id, tokens] : peer.orders)
      inbox_.Push(
          DoneMessage{id, StrCat("the engine at ", peer.address.Text(), " is lost: ", reason)});
    peer.orders.clear();
    peer.tokens = 0;
  }

  Options options_;
  Inbox<Event> inbox_;
  mutable std::mutex mutex_;
  std::vector<PeerState> peers_;
  asio::io_context io_{1};  // destroyed before what its coroutines use
  std::thread thread_;
};

}  // namespace

std::unique_ptr<PrefillClient> PrefillClient::Start(Options options) {
  return std::make_unique<AsioPrefillClient>(std::move(options));
}

}  // namespace pinion
