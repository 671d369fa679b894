#include "engine/transfer/prefill_server.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
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

constexpr size_t kMostConnections = 256;
constexpr size_t kMostOrders = 4096;  // of a connection, that are not done: more than ever run
constexpr size_t kHelloBytes = 64 << 10;
constexpr double kHelloSeconds = 10;
// Of what the engine has not taken yet, during a step; beyond it nothing is read.
constexpr size_t kMostUntaken = 10'000, kMostUntakenBytes = size_t{64} << 20;

// Why engines with these facts cannot hand blocks to each other; empty: they can.
std::string Difference(const Facts& mine, const Facts& theirs) {
  for (size_t i = 0; i < mine.size(); ++i) {
    const auto& [what, value] = mine[i];
    const bool has = i < theirs.size() && theirs[i].first == what;
    if (has && theirs[i].second == value) continue;
    return StrCat("the engines differ: ", what, " is ", value,
                  " in the one that computes prompts and ", has ? theirs[i].second : "unknown",
                  " in the one that asks");
  }
  return "";
}

class AsioPrefillServer final : public PrefillServer {
 public:
  explicit AsioPrefillServer(Options options) : options_(std::move(options)) {}
  ~AsioPrefillServer() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
    orders_.clear();  // its sockets belong to io_
    if (is_bound_ && options_.listen.is_unix()) unlink(options_.listen.path.c_str());
  }

  Status Listen() {
    error_code error;
    if (options_.listen.is_unix())
      ListenUnix(error);
    else
      ListenTcp(error);
    if (error)
      return Fail(ErrorCode::kFailed, StrCat("cannot listen on ", options_.listen.Text(), ": ",
                                             error.message(), "; choose another --prefill-listen"));
    thread_ = std::thread([this] {
      if (!options_.cpus.empty()) static_cast<void>(SetThreadAffinity(options_.cpus));
      io_.run();
    });
    return {};
  }

  std::optional<Arrived> Next() override { return inbox_.Pop(); }
  bool has_next() const override { return !inbox_.empty(); }
  int wake_fd() const override { return inbox_.fd(); }
  const Address& address() const override { return options_.listen; }
  size_t connections() const override { return welcome_; }

  void Send(const Receiver& to, TransferMessage message) override {
    std::string frame = EncodeTransfer(message);
    const bool is_last = std::holds_alternative<DoneMessage>(message);
    *to.unsent += frame.size();  // until the connection counts it
    asio::post(io_, [this, to, is_last, frame = std::move(frame)]() mutable {
      *to.unsent -= frame.size();
      SendNow(to.id, is_last, std::move(frame));
    });
  }

 private:
  void ListenTcp(error_code& error) {
    asio::ip::tcp::resolver resolver(io_);
    const auto found = resolver.resolve(options_.listen.host, options_.listen.port,
                                        asio::ip::tcp::resolver::passive, error);
    if (error || found.empty()) return;
    const asio::ip::tcp::endpoint endpoint = *found.begin();
    auto acceptor = std::make_shared<asio::ip::tcp::acceptor>(io_);
    acceptor->open(endpoint.protocol(), error);
    if (!error) acceptor->set_option(asio::ip::tcp::acceptor::reuse_address(true), error);
    BindAndAccept(acceptor, endpoint, error);
    if (!error) options_.listen.port = StrCat(acceptor->local_endpoint(error).port());
  }

  void ListenUnix(error_code& error) {
    auto acceptor = std::make_shared<asio::local::stream_protocol::acceptor>(io_);
    const asio::local::stream_protocol::endpoint endpoint(options_.listen.path);
    if (IsLeftOver(endpoint)) unlink(options_.listen.path.c_str());
    acceptor->open(endpoint.protocol(), error);
    BindAndAccept(acceptor, endpoint, error);
  }

  // Whether it is the socket of an engine that was killed: nobody answers there.
  bool IsLeftOver(const asio::local::stream_protocol::endpoint& endpoint) {
    struct stat status {};
    if (stat(options_.listen.path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
    asio::local::stream_protocol::socket socket(io_);
    error_code error;
    socket.connect(endpoint, error);
    return error == asio::error::connection_refused;
  }

  template <typename Acceptor>
  void BindAndAccept(std::shared_ptr<Acceptor> acceptor,
                     const typename Acceptor::endpoint_type& endpoint, error_code& error) {
    if (!error) fcntl(acceptor->native_handle(), F_SETFD, FD_CLOEXEC);
    if (!error) acceptor->bind(endpoint, error);
    is_bound_ = !error;
    if (!error) acceptor->listen(64, error);
    if (!error)
      asio::co_spawn(
          io_, [this, acceptor] { return Accept(acceptor); }, asio::detached);
  }

  template <typename Acceptor>
  asio::awaitable<void> Accept(std::shared_ptr<Acceptor> acceptor) {
    for (;;) {
      auto [error, accepted] = co_await acceptor->async_accept(kTransferAwait);
      if (error || open_ >= kMostConnections) {  // out of descriptors: some will be closed
        asio::steady_timer pause(io_, TransferSeconds(0.1));
        co_await pause.async_wait(kTransferAwait);
        continue;
      }
      Connection::Socket socket(std::move(accepted));
      SetUpSocket(socket);
      auto connection = std::make_shared<Connection>(std::move(socket));
      asio::co_spawn(
          io_, [this, connection] { return Serve(connection); }, asio::detached);
    }
  }

  asio::awaitable<void> Serve(std::shared_ptr<Connection> connection) {
    ++open_;
    connection->CloseAfter(kHelloSeconds);
    const auto first = co_await connection->Receive(kHelloBytes);
    const auto* hello = first ? std::get_if<HelloMessage>(&*first) : nullptr;
    if (hello) {
      connection->KeepOpen();
      const std::string refusal = Difference(options_.facts, hello->facts);
      connection->Send(EncodeTransfer(WelcomeMessage{refusal, options_.most_tokens}));
      if (refusal.empty()) {
        ++welcome_;
        connection->SendSignsOfLife(options_.sign_of_life_s);
        co_await TakeOrders(connection);
        --welcome_;
      } else {
        Say(refusal);
        connection->CloseAfter(kHelloSeconds);
        co_await connection->Receive(0);  // until it has read the reason and goes
      }
    }
    if (!connection->error().empty() || !hello)
      LogWarning(StrCat(
          "a connection to ", options_.listen.Text(), " is closed: ",
          connection->error().empty() ? "it did not begin with a greeting" : connection->error()));
    connection->Close();
    --open_;
  }

  // An engine that is refused tries again every second.
  void Say(const std::string& refusal) {
    if (refusal != said_)
      LogWarning(StrCat("an engine that asks for prompts is refused: ", refusal));
    said_ = refusal;
  }

  asio::awaitable<void> TakeOrders(std::shared_ptr<Connection> connection) {
    constexpr size_t kBesideTokens = 64 << 10;  // the salt, numbers
    const size_t most = options_.most_tokens * sizeof(int32_t) + kBesideTokens;
    std::map<uint64_t, uint64_t> ours;  // by their ids
    while (auto message = co_await connection->Receive(most)) {
      if (auto* order = std::get_if<OrderMessage>(&*message)) {
        if (ours.contains(order->id) || ours.size() >= kMostOrders) break;
        const uint64_t id = ++last_id_;
        ours[order->id] = id;
        orders_[id] = connection;
        const size_t bytes = order->tokens.size() * sizeof(int32_t) + order->salt.size();
        inbox_.Push({{id, connection->unsent()}, std::move(*order)}, bytes);
      } else if (const auto* cancel = std::get_if<CancelMessage>(&*message)) {
        const auto found = ours.find(cancel->id);
        if (found == ours.end()) continue;
        if (orders_.erase(found->second) > 0) inbox_.Push({{found->second}, std::nullopt});
        ours.erase(found);
      } else {
        break;
      }
      std::erase_if(ours, [&](const auto& pair) { return !orders_.contains(pair.second); });
      while (inbox_.size() > kMostUntaken || inbox_.bytes() > kMostUntakenBytes) {
        asio::steady_timer pause(io_, TransferSeconds(0.002));
        co_await pause.async_wait(kTransferAwait);
      }
    }
    for (const auto& [theirs, id] : ours)
      if (orders_.erase(id) > 0) inbox_.Push({{id}, std::nullopt});
  }

  void SendNow(uint64_t id, bool is_last, std::string frame) {
    const auto found = orders_.find(id);
    if (found == orders_.end()) return;
    const std::shared_ptr<Connection> connection = found->second;
    if (is_last) orders_.erase(found);
    connection->Send(std::move(frame));
  }

  Options options_;
  bool is_bound_ = false;
  std::atomic<size_t> welcome_ = 0;
  Inbox<Arrived> inbox_;
  // Of the thread.
  size_t open_ = 0;
  uint64_t last_id_ = 0;
  std::string said_;
  std::map<uint64_t, std::shared_ptr<Connection>> orders_;  // that are not done
  asio::io_context io_{1};  // destroyed before what its coroutines use
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<PrefillServer>> PrefillServer::Start(Options options) {
  auto server = std::make_unique<AsioPrefillServer>(std::move(options));
  PINION_TRY(server->Listen());
  return server;
}

}  // namespace pinion
