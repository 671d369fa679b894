#include "engine/serve/http.h"

#include <fcntl.h>

#include <boost/asio.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/serve/http_reply.h"
#include "engine/serve/schema.h"

namespace pinion {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAwait = asio::experimental::as_tuple(asio::use_awaitable);

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// Children that are started later must not keep a client's connection or the port open.
void CloseOnExec(int fd) { fcntl(fd, F_SETFD, FD_CLOEXEC); }

class Connection;

// What the connections share with the server.
struct Shared {
  HttpOptions options;
  HttpServer::Handler handler;
  std::set<Connection*> connections;
  bool draining = false;
  std::function<void()> closed_one;
};

// One client's connection: requests one after the other.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Shared& shared)
      : socket_(std::move(socket)),
        deadline_(socket_.get_executor()),
        news_(socket_.get_executor(), std::chrono::steady_clock::time_point::max()),
        shared_(shared) {
    shared_.connections.insert(this);
  }
  ~Connection() {
    if (reply_) reply_->Detach();
    shared_.connections.erase(this);
    shared_.closed_one();
  }

  asio::awaitable<void> Run() {
    const auto self = shared_from_this();
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    while (co_await Exchange()) {
    }
    ClearDeadline();
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    co_await Linger();
    socket_.close(ignored);
  }

  // While draining: nothing more will come from an idle connection.
  void CloseIfIdle() {
    error_code ignored;
    if (idle_) socket_.close(ignored);
    if (reply_) reply_->CloseAfterwards();
  }
  void Abandon() {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  // Reads one request and answers it. False: the connection is to be closed.
  asio::awaitable<bool> Exchange() {
    if (!co_await WaitForFirstByte()) co_return false;
    http::request_parser<http::string_body> parser;
    parser.header_limit(static_cast<uint32_t>(shared_.options.max_header_bytes));
    parser.body_limit(shared_.options.max_body_bytes);
    if (!co_await ReadRequest(parser)) co_return false;
    auto& message = parser.get();
    const auto target = std::string_view(message.target().data(), message.target().size());
    HttpRequest request{std::string(message.method_string()),
                        std::string(target.substr(0, target.find('?'))), std::move(message.body()),
                        NowNs()};
    const bool http11 = message.version() >= 11;
    auto reply = std::make_shared<BufferedReply>(http11, message.keep_alive() && !shared_.draining,
                                                 shared_.options.max_unsent_bytes);
    if (message.method() == http::verb::head) {
      reply->AnswersHead();
      request.method = "GET";
    }
    co_return co_await Answer(std::move(request), std::move(reply));
  }

  asio::awaitable<bool> WaitForFirstByte() {
    if (buffer_.size() > 0) co_return true;
    if (shared_.draining) co_return false;
    SetDeadline(shared_.options.idle_seconds);
    idle_ = true;
    const auto [error, count] = co_await socket_.async_read_some(buffer_.prepare(16 << 10), kAwait);
    idle_ = false;
    buffer_.commit(count);
    co_return !error;
  }

  asio::awaitable<bool> ReadRequest(http::request_parser<http::string_body>& parser) {
    SetDeadline(shared_.options.header_seconds);
    auto [error, count] = co_await http::async_read_header(socket_, buffer_, parser, kAwait);
    if (!error) {
      SetDeadline(shared_.options.body_seconds);
      if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
        static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
        co_await asio::async_write(socket_, asio::buffer(kContinue), kAwait);
      }
      std::tie(error, count) = co_await http::async_read(socket_, buffer_, parser, kAwait);
    }
    if (!error) co_return true;
    if (error == http::error::body_limit)
      co_await Refuse(413, StrCat("the request body exceeds ", shared_.options.max_body_bytes,
                                  " bytes; send less text per request"));
    else if (error == http::error::header_limit || error == http::error::buffer_overflow)
      co_await Refuse(
          431, StrCat("the request header exceeds ", shared_.options.max_header_bytes, " bytes"));
    else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
             error != http::error::end_of_stream && error != http::error::partial_message)
      co_await Refuse(400, StrCat("not an HTTP/1 request: ", error.message()));
    co_return false;
  }

  // Answers what could not be parsed; the connection is closed afterwards.
  asio::awaitable<void> Refuse(int status, std::string message) {
    BufferedReply reply(true, false, shared_.options.max_unsent_bytes);
    reply.Send(status, "application/json",
               ToJson(ApiError{status, std::move(message), "", ""}).Dump());
    const std::string text = reply.TakeUnsent();
    SetDeadline(shared_.options.write_seconds);
    co_await asio::async_write(socket_, asio::buffer(text), kAwait);
  }

  asio::awaitable<bool> Answer(HttpRequest request, std::shared_ptr<BufferedReply> reply) {
    using namespace asio::experimental::awaitable_operators;
    reply_ = reply;
    // Closing the socket fails whatever waits for it.
    reply->Attach({[this] { news_.cancel(); }, [this] { Abandon(); }});
    ClearDeadline();
    shared_.handler(std::move(request), reply);
    bool written = false;
    if (reply->ended()) {
      written = co_await WriteAll(*reply);
    } else {
      const auto first = co_await (WriteAll(*reply) || WatchForEnd());
      written = first.index() == 0 && std::get<0>(first);
    }
    reply->Detach();
    reply_ = nullptr;
    if (!written) reply->Gone();
    co_return written && reply->keep_alive();
  }

  // Writes the answer as it comes, until its end. False where the client has gone or is too slow.
  asio::awaitable<bool> WriteAll(BufferedReply& reply) {
    for (;;) {
      const std::string text = reply.TakeUnsent();
      for (size_t sent = 0; sent < text.size();) {
        SetDeadline(shared_.options.write_seconds);
        const auto [error, count] = co_await socket_.async_write_some(
            asio::buffer(text.data() + sent, text.size() - sent), kAwait);
        if (error) co_return false;
        sent += count;
      }
      ClearDeadline();
      if (!text.empty()) continue;
      if (reply.ended()) co_return true;
      co_await news_.async_wait(kAwait);
    }
  }

  // Returns when the client closes its side. Reading is the only way to see that, so what it sends
  // meanwhile (pipelined requests) is kept, up to a limit beyond which it must wait.
  asio::awaitable<void> WatchForEnd() {
    constexpr size_t kMostAhead = 64 << 10;
    while (buffer_.size() < kMostAhead) {
      const auto [error, count] =
          co_await socket_.async_read_some(buffer_.prepare(16 << 10), kAwait);
      buffer_.commit(count);
      if (error) co_return;
    }
    asio::steady_timer never(socket_.get_executor(), std::chrono::steady_clock::time_point::max());
    co_await never.async_wait(kAwait);
  }

  // A close with unread input resets the connection, and the client may lose our last answer: read
  // on a little while it finishes sending and reacts to the end of ours.
  asio::awaitable<void> Linger() {
    constexpr double kSilentSeconds = 1, kTotalSeconds = 10;
    char scrap[16 << 10];
    const int64_t start_ns = NowNs();
    while (socket_.is_open() && SecondsSince(start_ns) < kTotalSeconds) {
      SetDeadline(kSilentSeconds);
      const auto [error, count] = co_await socket_.async_read_some(asio::buffer(scrap), kAwait);
      if (error) break;
    }
    ClearDeadline();
  }

  // After `seconds` the socket is closed, which ends whatever waits for it.
  void SetDeadline(double seconds) {
    deadline_.expires_after(Milliseconds(seconds));
    deadline_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (!error && self && self->deadline_.expiry() <= std::chrono::steady_clock::now())
        self->Abandon();
    });
  }

  // Not just cancel: an expiry that is already queued must find the deadline moved.
  void ClearDeadline() { deadline_.expires_at(std::chrono::steady_clock::time_point::max()); }

  tcp::socket socket_;
  asio::steady_timer deadline_;
  asio::steady_timer news_;  // never expires; cancelled when the reply has more
  boost::beast::flat_buffer buffer_;
  Shared& shared_;
  std::shared_ptr<BufferedReply> reply_;
  bool idle_ = false;
};

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
    error_code error;
    tcp::resolver resolver(io_);
    const std::string place = StrCat(shared_.options.host, ":", shared_.options.port);
    const auto found = resolver.resolve(shared_.options.host, std::to_string(shared_.options.port),
                                        tcp::resolver::passive, error);
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

  void OnSignal(std::function<void()> callback) override {
    if (!signals_) signals_.emplace(io_, SIGTERM, SIGINT);
    signals_->async_wait([this, callback = std::move(callback)](error_code error, int) mutable {
      if (error) return;
      callback();
      OnSignal(std::move(callback));
    });
  }

  void Post(std::function<void()> callback) override { asio::post(io_, std::move(callback)); }

  void Run() override { io_.run(); }
  void Stop() override { io_.stop(); }

  void Drain(double seconds) override {
    shared_.draining = true;
    error_code ignored;
    acceptor_.close(ignored);
    const auto open = shared_.connections;  // closing one changes the set
    for (Connection* connection : open) connection->CloseIfIdle();
    drain_end_.expires_after(Milliseconds(seconds));
    drain_end_.async_wait([this](error_code error) {
      if (!error) Stop();
    });
    OnClosed();
  }

 private:
  asio::awaitable<void> Accept() {
    while (acceptor_.is_open()) {
      if (shared_.connections.size() >= shared_.options.max_connections) {
        co_await Pause();
        continue;
      }
      auto [error, socket] = co_await acceptor_.async_accept(kAwait);
      if (!error) {
        CloseOnExec(socket.native_handle());
        auto connection = std::make_shared<Connection>(std::move(socket), shared_);
        asio::co_spawn(
            io_, [connection] { return connection->Run(); }, asio::detached);
      } else if (acceptor_.is_open()) {
        LogWarning(StrCat("cannot accept a connection: ", error.message()));
        co_await Pause();  // out of descriptors: some will be closed
      }
    }
  }

  asio::awaitable<void> Pause() {
    asio::steady_timer pause(io_, Milliseconds(0.05));
    co_await pause.async_wait(kAwait);
  }

  void OnClosed() {
    if (shared_.draining && shared_.connections.empty()) Stop();
  }

  asio::posix::stream_descriptor& StreamFor(int fd) {
    auto& stream = streams_[fd];
    if (!stream) stream = std::make_unique<asio::posix::stream_descriptor>(io_, fd);
    return *stream;
  }

  Shared shared_;  // before io_: connections inside io_'s coroutines refer to it
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer drain_end_{io_};
  std::optional<asio::signal_set> signals_;
  std::map<int, std::unique_ptr<asio::posix::stream_descriptor>> streams_;
};

}  // namespace

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
