#include "engine/serve/http.h"

#include <fcntl.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/serve/http_connection.h"

namespace pinion {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Children that are started later must not keep a client's connection or the port open.
void CloseOnExec(int fd) { fcntl(fd, F_SETFD, FD_CLOEXEC); }

class Server final : public HttpServer {
 public:
  Server(const HttpOptions& options, Handler handler) {
    shared_.options = options;
    shared_.handler = std::move(handler);
    shared_.closed_one = [this] { OnClosed(); };
  }
  ~Server() override {
    // Coroutines that never finished own their connections; they go with the io_context, which may
    // not call back into a half-destroyed server.
    shared_.closed_one = [] {};
    for (auto& [fd, stream] : streams_) stream->release();
  }

  Status Open() {
    const HttpOptions& options = shared_.options;
    if (!options.ssl_certfile.empty()) {
      PINION_ASSIGN(shared_.tls, LoadTls(options.ssl_certfile, options.ssl_keyfile));
    }
    error_code error;
    tcp::resolver resolver(io_);
    const std::string place = HostAndPort(options.host, options.port);
    std::string host = options.host;
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    const auto found =
        resolver.resolve(host, std::to_string(options.port), tcp::resolver::passive, error);
    if (error || found.empty())
      return Fail(ErrorCode::kFailed, StrCat("cannot listen on ", place, ": ", error.message(),
                                             "; give --host an address of this machine"));
    const tcp::endpoint endpoint = *found.begin();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) CloseOnExec(acceptor_.native_handle());
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(1024, error);
    if (error)
      return Fail(ErrorCode::kFailed,
                  StrCat("cannot listen on ", place, ": ", error.message(),
                         "; choose another --port or --host, or stop what uses it"));
    asio::co_spawn(io_, Accept(), asio::detached);
    return {};
  }

  uint16_t port() const override {
    error_code ignored;
    return acceptor_.local_endpoint(ignored).port();
  }

  void WatchReadable(int fd, std::function<bool()> callback) override {
    auto& stream = StreamFor(fd);
    stream.async_wait(asio::posix::stream_descriptor::wait_read,
                      [this, fd, callback = std::move(callback)](error_code error) mutable {
                        if (!error && callback()) WatchReadable(fd, std::move(callback));
                      });
  }

  void OnceWritable(int fd, std::function<void()> callback) override {
    StreamFor(fd).async_wait(asio::posix::stream_descriptor::wait_write,
                             [callback = std::move(callback)](error_code error) {
                               if (!error) callback();
                             });
  }

  void Unwatch(int fd) override {
    const auto found = streams_.find(fd);
    if (found == streams_.end()) return;
    // Cancels its waits: their callbacks are destroyed without being called.
    found->second->release();
    streams_.erase(found);
  }

  void After(double seconds, std::function<void()> callback) override {
    auto timer = std::make_shared<asio::steady_timer>(io_, Milliseconds(seconds));
    timer->async_wait([timer, callback = std::move(callback)](error_code error) {
      if (!error) callback();
    });
  }

  void OnSignal(const std::vector<int>& signals, std::function<void()> callback) override {
    asio::signal_set& set = signals_.emplace_back(io_);
    for (const int number : signals) set.add(number);
    WaitForSignal(set, std::move(callback));
  }

  void Post(std::function<void()> callback) override { asio::post(io_, std::move(callback)); }

  void Run() override { io_.run(); }
  void Stop() override { io_.stop(); }

  size_t connections() const override { return shared_.connections.size(); }

  void Drain(double seconds, std::function<void()> at_limit) override {
    shared_.draining = true;
    error_code ignored;
    acceptor_.close(ignored);
    const auto open = shared_.connections;  // closing one changes the set
    for (HttpConnection* connection : open) connection->CloseIfIdle();
    DrainFor(seconds, [this, at_limit = std::move(at_limit)] {
      if (!at_limit) return Stop();
      at_limit();
      DrainFor(kLastWritesSeconds, [this] { Stop(); });
    });
    OnClosed();
  }

 private:
  void WaitForSignal(asio::signal_set& set, std::function<void()> callback) {
    set.async_wait([this, &set, callback = std::move(callback)](error_code error, int) mutable {
      if (error) return;
      callback();
      WaitForSignal(set, std::move(callback));
    });
  }

  asio::awaitable<void> Accept() {
    while (acceptor_.is_open()) {
      if (Full() && !LongestWaiting()) {
        co_await Pause();
        continue;
      }
      auto [error, socket] = co_await acceptor_.async_accept(kAwait);
      if (!error) {
        CloseOnExec(socket.native_handle());
        HttpConnection* oldest = Full() ? LongestWaiting() : nullptr;
        if (oldest) oldest->MakeWay();
        auto connection = std::make_shared<HttpConnection>(std::move(socket), shared_);
        asio::co_spawn(
            io_, [connection] { return connection->Run(); }, asio::detached);
      } else if (acceptor_.is_open()) {
        WarnOfRefusal(error.message());
        co_await Pause();  // out of descriptors: some will be closed
      }
    }
  }

  // It is tried again many times a second, which would fill a disk with the same line.
  void WarnOfRefusal(const std::string& reason) {
    constexpr double kPauseSeconds = 60;
    if (warned_ns_ && SecondsSince(*warned_ns_) < kPauseSeconds) return;
    warned_ns_ = NowNs();
    LogWarning(StrCat("cannot accept connections: ", reason, "; said once a minute"));
  }

  bool Full() const { return shared_.connections.size() >= shared_.options.max_connections; }

  // Of the connections whose client is not owed an answer, the one that has been silent longest:
  // idle clients must not keep others out. Null if all are owed one.
  HttpConnection* LongestWaiting() const {
    HttpConnection* oldest = nullptr;
    const auto rank = [](const HttpConnection& one) {
      return std::pair(one.phase(), one.phase_since_ns());
    };
    for (HttpConnection* one : shared_.connections)
      if (one->phase() != HttpConnection::Phase::kAnswer && (!oldest || rank(*one) < rank(*oldest)))
        oldest = one;
    return oldest;
  }

  asio::awaitable<void> Pause() {
    asio::steady_timer pause(io_, Milliseconds(0.05));
    co_await pause.async_wait(kAwait);
  }

  void DrainFor(double seconds, std::function<void()> at_end) {
    drain_end_.expires_after(Milliseconds(seconds));
    drain_end_.async_wait([at_end = std::move(at_end)](error_code error) {
      if (!error) at_end();
    });
  }

  void OnClosed() {
    if (shared_.draining && shared_.connections.empty()) Stop();
  }

  asio::posix::stream_descriptor& StreamFor(int fd) {
    auto& stream = streams_[fd];
    if (!stream) stream = std::make_unique<asio::posix::stream_descriptor>(io_, fd);
    return *stream;
  }

  static constexpr double kLastWritesSeconds = 1;
  std::optional<int64_t> warned_ns_;

  HttpShared shared_;  // before io_: connections inside io_'s coroutines refer to it
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer drain_end_{io_};
  std::list<asio::signal_set> signals_;  // one for each call of OnSignal
  std::map<int, std::unique_ptr<asio::posix::stream_descriptor>> streams_;
};

}  // namespace

std::string HostAndPort(const std::string& host, int port) {
  const bool is_bare = host.find(':') != host.npos && !host.starts_with('[');
  return is_bare ? StrCat('[', host, "]:", port) : StrCat(host, ':', port);
}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpOptions& options,
                                                       Handler handler) {
  try {
    auto server = std::make_unique<Server>(options, std::move(handler));
    PINION_TRY(server->Open());
    return server;
  } catch (const std::exception& failure) {
    return Fail(ErrorCode::kFailed, StrCat("cannot start the HTTP server: ", failure.what()));
  }
}

}  // namespace pinion
