#include "engine/serve/http_connection.h"

#include <algorithm>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/beast/http.hpp>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/strings.h"
#include "engine/serve/schema.h"

namespace pinion {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// The target without scheme, host and query: any client may send the absolute form meant for
// proxies (RFC 9112, 3.2.2).
std::string_view PathOf(std::string_view target) {
  if (boost::beast::iequals(target.substr(0, 7), "http://"))
    target.remove_prefix(std::min(target.find('/', 7), target.size()));
  return target.substr(0, target.find('?'));
}

std::string_view QueryOf(std::string_view target) {
  const size_t mark = target.find('?');
  return mark == target.npos ? "" : target.substr(mark + 1);
}

constexpr auto kAwait = asio::experimental::as_tuple(asio::use_awaitable);

}  // namespace

class HttpConnection::RequestReader : public http::request_parser<http::string_body> {};

HttpConnection::HttpConnection(tcp::socket socket, HttpShared& shared)
    : socket_(std::move(socket)),
      deadline_(socket_.get_executor()),
      more_(socket_.get_executor(), std::chrono::steady_clock::time_point::max()),
      shared_(shared) {
  shared_.connections.insert(this);
}

HttpConnection::~HttpConnection() {
  if (reply_) reply_->Detach();
  shared_.connections.erase(this);
  shared_.closed_one();
}

asio::awaitable<void> HttpConnection::Run() {
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

void HttpConnection::CloseIfIdle() {
  error_code ignored;
  if (idle_) socket_.close(ignored);
  if (reply_) reply_->CloseAfterwards();
}

void HttpConnection::Abandon() {
  error_code ignored;
  socket_.close(ignored);
}

asio::awaitable<bool> HttpConnection::Exchange() {
  if (!co_await WaitForFirstByte()) co_return false;
  RequestReader parser;
  parser.header_limit(static_cast<uint32_t>(shared_.options.max_header_bytes));
  parser.body_limit(shared_.options.max_body_bytes);
  if (!co_await ReadRequest(parser)) co_return false;
  auto& message = parser.get();
  const auto target = std::string_view(message.target().data(), message.target().size());
  const bool head = message.method() == http::verb::head;
  HttpRequest request;
  request.method = head ? "GET" : std::string(message.method_string());
  request.path = PathOf(target);
  request.query = QueryOf(target);
  for (const auto& field : message)
    request.headers.Add(std::string(field.name_string()), std::string(field.value()));
  error_code ignored;
  request.address = socket_.remote_endpoint(ignored).address().to_string();
  request.client = request.address;
  request.http11 = message.version() >= 11;
  request.body = std::move(message.body());
  request.head = head;
  request.arrived_ns = NowNs();
  auto reply = std::make_shared<BufferedReply>(
      request.http11, message.keep_alive() && !shared_.draining, shared_.options.max_unsent_bytes);
  if (head) reply->AnswersHead();
  co_return co_await Answer(std::move(request), std::move(reply));
}

asio::awaitable<bool> HttpConnection::WaitForFirstByte() {
  if (buffer_.size() > 0) co_return true;
  if (shared_.draining) co_return false;
  SetDeadline(shared_.options.idle_seconds);
  idle_ = true;
  const auto [error, count] = co_await socket_.async_read_some(buffer_.prepare(16 << 10), kAwait);
  idle_ = false;
  buffer_.commit(count);
  co_return !error;
}

asio::awaitable<bool> HttpConnection::ReadRequest(RequestReader& parser) {
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

asio::awaitable<void> HttpConnection::Refuse(int status, std::string message) {
  BufferedReply reply(true, false, shared_.options.max_unsent_bytes);
  reply.Send(status, "application/json",
             ToJson(ApiError{status, std::move(message), "", ""}).Dump());
  const std::string text = reply.TakeUnsent();
  SetDeadline(shared_.options.write_seconds);
  co_await asio::async_write(socket_, asio::buffer(text), kAwait);
}

asio::awaitable<bool> HttpConnection::Answer(HttpRequest request,
                                             std::shared_ptr<BufferedReply> reply) {
  using namespace asio::experimental::awaitable_operators;
  reply_ = reply;
  // On overflow the socket is closed: every pending operation fails, which ends the wait below.
  reply->Attach({[this] { more_.cancel(); }, [this] { Abandon(); }});
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
  if (!written) reply->MarkGone();
  co_return written && reply->keep_alive();
}

asio::awaitable<bool> HttpConnection::WriteAll(BufferedReply& reply) {
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
    co_await more_.async_wait(kAwait);
  }
}

asio::awaitable<void> HttpConnection::WatchForEnd() {
  constexpr size_t kMostAhead = 64 << 10;
  while (buffer_.size() < kMostAhead) {
    const auto [error, count] = co_await socket_.async_read_some(buffer_.prepare(16 << 10), kAwait);
    buffer_.commit(count);
    if (error) co_return;
  }
  asio::steady_timer never(socket_.get_executor(), std::chrono::steady_clock::time_point::max());
  co_await never.async_wait(kAwait);
}

asio::awaitable<void> HttpConnection::Linger() {
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

void HttpConnection::SetDeadline(double seconds) {
  deadline_.expires_after(Milliseconds(seconds));
  deadline_.async_wait([weak = weak_from_this()](error_code error) {
    const auto self = weak.lock();
    if (!error && self && self->deadline_.expiry() <= std::chrono::steady_clock::now())
      self->Abandon();
  });
}

// Not just cancel: an expiry that is already queued must find the deadline moved.
void HttpConnection::ClearDeadline() {
  deadline_.expires_at(std::chrono::steady_clock::time_point::max());
}

}  // namespace pinion
