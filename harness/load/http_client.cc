#include "harness/load/http_client.h"

#include <fcntl.h>

#include <boost/asio.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "harness/load/http_answer.h"

namespace pinion::harness {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAwait = asio::experimental::as_tuple(asio::use_awaitable);
constexpr size_t kMaxErrorBytes = 4096, kMaxFetchBytes = 64 << 20, kChunkBytes = 64 << 10;

// On Linux steady_clock is CLOCK_MONOTONIC.
std::chrono::steady_clock::time_point TimePoint(int64_t ns) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
}

// The beginning of `text` as part of a sentence, without characters that would break the line.
std::string InALine(std::string_view text) {
  constexpr size_t kMostBytes = 300;
  std::string line(Trim(text.substr(0, kMostBytes)));
  for (char& letter : line)
    if (static_cast<unsigned char>(letter) < ' ') letter = ' ';
  return text.size() > kMostBytes ? line + "..." : line;
}

// {"error":{"message":"..."}} or {"error":"..."} -> the message; else the text's first line.
std::string MessageOf(std::string_view body) {
  if (const auto json = Json::Parse(body)) {
    const Json* error = json->Find("error");
    const Json* message = error ? error->Find("message") : nullptr;
    if (!message) message = json->Find("message");
    if (!message) message = error;
    if (message && message->is_string()) return InALine(message->string());
  }
  const std::string_view text = Trim(body);
  return InALine(text.substr(0, text.find('\n')));
}

bool IsGood(int status) { return status >= 200 && status < 300; }

std::string Refusal(int status, std::string_view body) {
  const std::string message = MessageOf(body);
  return message.empty() ? StrCat("HTTP ", status) : StrCat("HTTP ", status, ": ", message);
}

struct Connection {
  explicit Connection(asio::io_context& io) : socket(io) {}
  tcp::socket socket;
  std::string closed_because;  // why the client closed it
  bool answered = false;       // of the current exchange: a byte has come
  bool keep_alive = false;     // after the current exchange
};

// One of the servers, and its idle connections.
struct Place {
  ServerUrl url;
  std::vector<tcp::endpoint> endpoints;
  std::vector<std::unique_ptr<Connection>> idle;
};

class Client final : public HttpClient {
 public:
  explicit Client(std::string api_key) : api_key_(std::move(api_key)) {}

  Status Add(const ServerUrl& url) {
    error_code error;
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(url.host, std::to_string(url.port), error);
    if (error || found.empty())
      return Fail(ErrorCode::kNotFound, StrCat("cannot find host '", url.host, "' of ", url.Text(),
                                               ": ", error.message()));
    Place& place = places_.emplace_back();
    place.url = url;
    for (const auto& entry : found) place.endpoints.push_back(entry.endpoint());
    return {};
  }

  void Start(HttpCall call) override {
    asio::co_spawn(io_, Exchange(std::move(call)), asio::detached);
  }

  void At(int64_t when_ns, std::function<void()> callback) override {
    auto timer = std::make_shared<asio::steady_timer>(io_, TimePoint(when_ns));
    timers_.insert(timer);
    timer->async_wait([this, timer, callback = std::move(callback)](error_code error) {
      if (timers_.erase(timer) > 0 && !error) callback();
    });
  }

  void CutOff() override {
    const auto open = live_;  // a copy: closing one changes the set
    for (Connection* connection : open) Close(*connection, "cut off");
  }

  void CancelTimers() override {
    const auto waiting = std::move(timers_);
    timers_.clear();
    for (const auto& timer : waiting) timer->cancel();
  }

  void Run() override {
    io_.restart();
    io_.run();
  }

 private:
  static void Close(Connection& connection, std::string why) {
    if (connection.closed_because.empty()) connection.closed_because = std::move(why);
    error_code ignored;
    connection.socket.close(ignored);
  }

  asio::awaitable<void> Exchange(HttpCall call) {
    HttpEnd end;
    Place& place = places_[call.server];
    asio::steady_timer deadline(io_);
    const auto limit = std::chrono::nanoseconds(static_cast<int64_t>(call.timeout_s * 1e9));
    deadline.expires_after(limit);
    const auto running =
        std::make_shared<bool>(true);  // its expiry may still be queued after the end
    for (bool again = true; again;) {
      bool reused = false;
      auto connection = TakeIdle(place);
      reused = connection != nullptr;
      if (!connection) connection = std::make_unique<Connection>(io_);
      live_.insert(connection.get());
      deadline.async_wait([connection = connection.get(), running, this,
                           limit_s = call.timeout_s](error_code error) {
        if (!error && *running && live_.count(connection))
          Close(*connection, StrCat("no complete answer within ", limit_s, " s"));
      });
      end = co_await Talk(*connection, place, call, reused);
      live_.erase(connection.get());
      // A server may close an idle connection just when it is used again.
      again = reused && !connection->answered && connection->closed_because.empty() &&
              !end.error.empty();
      if (!connection->closed_because.empty()) end.error = connection->closed_because;
      if (end.status > 0 && connection->keep_alive) place.idle.push_back(std::move(connection));
    }
    *running = false;
    deadline.cancel();
    end.ended_ns = NowNs();
    call.on_end(end);
  }

  static std::unique_ptr<Connection> TakeIdle(Place& place) {
    if (place.idle.empty()) return nullptr;
    auto connection = std::move(place.idle.back());
    place.idle.pop_back();
    connection->answered = connection->keep_alive = false;
    return connection;
  }

  asio::awaitable<HttpEnd> Talk(Connection& connection, const Place& place, const HttpCall& call,
                                bool reused) {
    HttpEnd end;
    if (!reused) {
      const auto [error, endpoint] =
          co_await asio::async_connect(connection.socket, place.endpoints, kAwait);
      if (error) {
        end.error = StrCat("cannot connect to ", place.url.Text(), ": ", error.message());
        co_return end;
      }
      error_code ignored;
      connection.socket.set_option(tcp::no_delay(true), ignored);
      fcntl(connection.socket.native_handle(), F_SETFD, FD_CLOEXEC);
    }
    const std::string text = HeaderOf(place.url, call) + call.body;
    const auto [error, count] =
        co_await asio::async_write(connection.socket, asio::buffer(text), kAwait);
    if (error) {
      end.error = StrCat("the connection broke while sending the request: ", error.message());
      co_return end;
    }
    co_await ReadAnswer(connection, call, end);
    co_return end;
  }

  std::string HeaderOf(const ServerUrl& url, const HttpCall& call) const {
    std::string text =
        StrCat(call.method, " ", url.prefix, call.path, " HTTP/1.1\r\nHost: ", url.Place(),
               "\r\nUser-Agent: pinion\r\nAccept: text/event-stream, application/json",
               "\r\nContent-Length: ", call.body.size(), "\r\n");
    if (!call.body.empty()) text += "Content-Type: application/json\r\n";
    if (!api_key_.empty()) text += StrCat("Authorization: Bearer ", api_key_, "\r\n");
    return text + "\r\n";
  }

  asio::awaitable<void> ReadAnswer(Connection& connection, const HttpCall& call, HttpEnd& end) {
    int64_t now_ns = 0;
    std::string unread, refusal;
    HttpAnswer answer([&](std::string_view bytes) {
      if (IsGood(answer.status())) {
        if (call.on_body) call.on_body(bytes, now_ns);
      } else if (refusal.size() < kMaxErrorBytes) {
        refusal += bytes;
      }
    });
    std::vector<char> chunk(kChunkBytes);
    while (!answer.done() && answer.error().empty()) {
      const auto [error, count] =
          co_await connection.socket.async_read_some(asio::buffer(chunk), kAwait);
      now_ns = NowNs();
      if (count > 0) connection.answered = true;
      unread.append(chunk.data(), count);
      unread.erase(0, answer.Feed(unread));
      if (error) answer.End(error == asio::error::eof ? "" : error.message());
    }
    end.status = answer.status();
    // Bytes beyond its end would be taken for the next answer.
    connection.keep_alive = answer.keep_alive() && unread.empty();
    if (end.status == 0) {
      end.error = StrCat("the server sent no HTTP answer: ", answer.error());
    } else if (!IsGood(end.status)) {
      end.error = Refusal(end.status, refusal);
    } else if (!answer.error().empty()) {
      end.error = StrCat("the answer broke off: ", answer.error());
    }
  }

  const std::string api_key_;
  std::set<Connection*> live_;
  asio::io_context io_{1};
  // Declared after io_, so that they are destroyed before it.
  std::set<std::shared_ptr<asio::steady_timer>> timers_;
  std::deque<Place> places_;
};

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::Make(const std::vector<ServerUrl>& urls,
                                                     std::string api_key) {
  try {
    auto client = std::make_unique<Client>(std::move(api_key));
    for (const ServerUrl& url : urls) PINION_TRY(client->Add(url));
    return client;
  } catch (const std::exception& failure) {
    return Fail(ErrorCode::kFailed, StrCat("cannot start the HTTP client: ", failure.what()));
  }
}

Result<std::string> HttpFetch(const ServerUrl& url, const std::string& method,
                              const std::string& path, const std::string& body, double timeout_s,
                              const std::string& api_key) {
  PINION_ASSIGN(const auto client, HttpClient::Make({url}, api_key));
  std::string answer;
  HttpEnd ended;
  HttpCall call;
  call.method = method;
  call.path = path;
  call.body = body;
  call.timeout_s = timeout_s;
  call.on_body = [&](std::string_view bytes, int64_t) {
    answer += bytes.substr(0, kMaxFetchBytes - answer.size());
  };
  call.on_end = [&](const HttpEnd& end) { ended = end; };
  client->Start(std::move(call));
  client->Run();
  if (ended.error.empty()) return answer;
  const ErrorCode code = ended.status == 404 ? ErrorCode::kNotFound : ErrorCode::kFailed;
  return Fail(code, StrCat(method, " ", url.Text(), path, ": ", ended.error));
}

}  // namespace pinion::harness
