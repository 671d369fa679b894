#include "engine/serve/http_connection.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <string_view>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/strings.h"

namespace pinion {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// "/root/v1/models" becomes "/v1/models": of proxies that leave a prefix in the path.
void TakeRoot(const std::string& root, std::string& path) {
  if (root.empty() || !path.starts_with(root)) return;
  if (path.size() == root.size())
    path = "/";
  else if (path[root.size()] == '/')
    path.erase(0, root.size());
}

constexpr auto kNever = std::chrono::steady_clock::time_point::max();
constexpr size_t kReadBytes = 16 << 10, kReadBodyBytes = 64 << 10;

std::string AddressOf(const tcp::socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  return error ? std::string() : endpoint.address().to_string();
}

// The rest of a request's header and body for the handler, which knows no HEAD.
HttpRequest RequestOf(HttpHead head, HttpVerdict& verdict) {
  HttpRequest request;
  static_cast<HttpHead&>(request) = std::move(head);
  request.head = request.method == "HEAD";
  if (request.head) request.method = "GET";
  request.id = std::move(verdict.id);
  request.client = verdict.client.empty() ? request.address : std::move(verdict.client);
  return request;
}

}  // namespace

HttpConnection::HttpConnection(tcp::socket socket, HttpShared& shared)
    : shared_(shared),
      address_(AddressOf(socket)),
      deadline_(socket.get_executor()),
      more_(socket.get_executor()),
      phase_since_ns_(NowNs()) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  channel_ = MakeChannel(std::move(socket), shared_.tls);
  shared_.connections.insert(this);
}

HttpConnection::~HttpConnection() {
  if (reply_) reply_->Detach();
  shared_.connections.erase(this);
  shared_.closed_one();
}

Awaitable<void> HttpConnection::Run() {
  const auto self = shared_from_this();
  SetDeadline(shared_.options.header_seconds);
  if (co_await channel_->Handshake())
    while (co_await Exchange()) {
    }
  co_await Linger();
  channel_->Close();
}

void HttpConnection::CloseIfIdle() {
  if (idle_) channel_->Close();
  if (reply_) reply_->CloseAfterwards();
}

void HttpConnection::MakeWay() {
  shared_.connections.erase(this);
  Abandon();
}

void HttpConnection::Abandon() { channel_->Close(); }

void HttpConnection::Enter(Phase phase) {
  phase_ = phase;
  phase_since_ns_ = NowNs();
}

std::shared_ptr<BufferedReply> HttpConnection::MakeReply(
    bool http11, bool keep_alive, const std::shared_ptr<MemoryBudget>& memory,
    const std::string& client) const {
  return std::make_shared<BufferedReply>(
      http11, keep_alive && !shared_.draining, shared_.options.max_unsent_bytes,
      memory ? *MemoryShare::Take(memory, client, 0) : MemoryShare());
}

Awaitable<bool> HttpConnection::Exchange() {
  Enter(Phase::kWaiting);
  if (!co_await WaitForFirstByte()) co_return false;
  const int64_t start_ns = NowNs();
  AccessRecord record;
  const bool go_on = co_await ReadAndAnswer(record);
  record.seconds = SecondsSince(start_ns);
  if (shared_.options.log && (record.status != 0 || !record.method.empty()))
    shared_.options.log(record);
  // A large request must not leave its memory with an idle connection.
  if (buffer_.capacity() > kReadBodyBytes) buffer_.shrink_to_fit();
  co_return go_on;
}

Awaitable<bool> HttpConnection::WaitForFirstByte() {
  if (buffer_.size() > 0) co_return true;
  if (shared_.draining) co_return false;
  SetDeadline(shared_.options.idle_seconds);
  idle_ = true;
  const auto got = co_await channel_->Read(buffer_.prepare(kReadBytes));
  idle_ = false;
  buffer_.commit(got.bytes);
  co_return got.ok;
}

Awaitable<bool> HttpConnection::ReadAndAnswer(AccessRecord& record) {
  const HttpOptions& options = shared_.options;
  HttpParser parser({options.max_header_bytes, options.max_header_fields, options.max_body_bytes},
                    options.memory);
  if (!co_await ReadHeader(parser, record)) {
    if (!parser.refusal()) co_return false;
    const auto reply = MakeReply(true, false, options.memory, address_);
    co_return co_await Refuse(*parser.refusal(), *reply, record);
  }
  const bool wants_continue = parser.wants_continue();
  HttpHead head = parser.TakeHead();
  head.address = address_;
  TakeRoot(options.root_path, head.path);
  record.address = address_;
  record.method = head.method;
  record.path = head.path;
  HttpVerdict verdict = options.check ? options.check(head) : HttpVerdict{};
  record.id = verdict.id;
  // A body that is not read would be taken for the next request.
  const bool reads_body = !verdict.refusal || parser.done();
  HttpRequest request = RequestOf(std::move(head), verdict);
  parser.SetClient(request.client);
  auto reply = MakeReply(request.http11, parser.keep_alive() && reads_body,
                         verdict.tells_of_server ? nullptr : options.memory, request.client);
  for (auto& [name, value] : verdict.headers) reply->AddHeader(name, value);
  record.client = request.client;
  if (request.head) reply->AnswersHead();
  if (verdict.refusal) co_return co_await Refuse(*verdict.refusal, *reply, record);
  if (wants_continue && !parser.refusal()) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!(co_await channel_->Write(asio::buffer(kContinue))).ok) co_return false;
  }
  if (!co_await ReadBody(parser, record)) {
    if (!parser.refusal()) co_return false;
    reply->CloseAfterwards();
    co_return co_await Refuse(*parser.refusal(), *reply, record);
  }
  request.body = parser.TakeBody();
  request.memory = parser.TakeMemory();
  request.arrived_ns = NowNs();
  co_return co_await Answer(std::move(request), std::move(reply), record);
}

Awaitable<bool> HttpConnection::ReadHeader(HttpParser& parser, AccessRecord& record) {
  SetDeadline(shared_.options.header_seconds);
  co_return co_await Feed(parser, false, record);
}

Awaitable<bool> HttpConnection::ReadBody(HttpParser& parser, AccessRecord& record) {
  Enter(Phase::kBody);
  SetDeadline(shared_.options.body_seconds);
  co_return co_await Feed(parser, true, record);
}

Awaitable<bool> HttpConnection::Feed(HttpParser& parser, bool to_the_end, AccessRecord& record) {
  for (;;) {
    const auto bytes = buffer_.data();
    const size_t used = parser.Feed({static_cast<const char*>(bytes.data()), bytes.size()});
    buffer_.consume(used);
    record.bytes_in += used;
    if (parser.refusal()) co_return false;
    if (to_the_end ? parser.done() : parser.header_done()) co_return true;
    const auto got =
        co_await channel_->Read(buffer_.prepare(to_the_end ? kReadBodyBytes : kReadBytes));
    buffer_.commit(got.bytes);
    if (!got.ok) co_return false;
  }
}

Awaitable<bool> HttpConnection::Refuse(const HttpRefusal& refusal, BufferedReply& reply,
                                       AccessRecord& record) {
  Enter(Phase::kAnswer);
  for (const auto& [name, value] : refusal.headers) reply.AddHeader(name, value);
  reply.Send(refusal.status, "application/json", refusal.body);
  record.complete = co_await WriteAll(reply, record);
  record.status = reply.status();
  co_return record.complete&& reply.keep_alive();
}

Awaitable<bool> HttpConnection::Answer(HttpRequest request, std::shared_ptr<BufferedReply> reply,
                                       AccessRecord& record) {
  using namespace asio::experimental::awaitable_operators;
  Enter(Phase::kAnswer);
  reply_ = reply;
  record_ = &record;
  // On overflow the socket is closed: every pending operation fails, which ends the wait below.
  reply->Attach({[this] { OnMore(); }, [this] { Abandon(); }});
  ClearDeadline();
  shared_.handler(std::move(request), reply);
  if (reply->ended()) {
    record.complete = co_await WriteAll(*reply, record);
  } else {
    const auto first = co_await (WriteAll(*reply, record) || WatchForEnd());
    record.complete = first.index() == 0 && std::get<0>(first);
  }
  waits_for_more_ = false;
  reply->Detach();
  reply_ = nullptr;
  record_ = nullptr;
  record.status = reply->status();
  if (!record.complete) reply->MarkGone();
  co_return record.complete && reply->keep_alive();
}

Awaitable<bool> HttpConnection::WriteAll(BufferedReply& reply, AccessRecord& record) {
  written_ns_ = NowNs();
  for (;;) {
    for (std::string_view text; !(text = reply.Unsent()).empty();) {
      size_t count = channel_->TryWrite(text);
      if (count == 0) {
        SetDeadline(shared_.options.write_seconds);
        const auto put = co_await channel_->Write(asio::buffer(text));
        if (!put.ok) co_return false;
        count = put.bytes;
        ClearDeadline();
      }
      reply.Sent(count);
      record.bytes_out += count;
      written_ns_ = NowNs();
    }
    if (reply.ended()) co_return true;
    if (!channel_->is_open()) co_return false;
    co_await WaitForMore(reply);
  }
}

Awaitable<void> HttpConnection::WaitForMore(BufferedReply& reply) {
  const double interval = shared_.options.sse_keep_alive_seconds;
  for (;;) {
    if (interval > 0)  // and the millisecond that rounding takes
      more_.expires_after(Milliseconds(interval - SecondsSince(written_ns_) + 0.001));
    else
      more_.expires_at(kNever);
    waits_for_more_ = true;
    const auto [error] = co_await more_.async_wait(kAwait);
    waits_for_more_ = false;
    if (error) co_return;  // cancelled
    // Bytes that OnMore has written since have moved the time of the next comment.
    if (SecondsSince(written_ns_) < interval) continue;
    written_ns_ = NowNs();
    reply.KeepAlive();
    co_return;
  }
}

void HttpConnection::OnMore() {
  if (!waits_for_more_) return;  // WriteAll is at work and will find it
  const std::string_view text = reply_->Unsent();
  const size_t count = text.empty() ? 0 : channel_->TryWrite(text);
  if (count > 0) {
    reply_->Sent(count);
    record_->bytes_out += count;
    written_ns_ = NowNs();
  }
  if (!reply_->ended() && reply_->Unsent().empty()) return;
  waits_for_more_ = false;
  more_.cancel();
}

Awaitable<void> HttpConnection::WatchForEnd() {
  constexpr size_t kMostAhead = 64 << 10;
  while (buffer_.size() < kMostAhead) {
    const auto got = co_await channel_->Read(buffer_.prepare(kReadBytes));
    buffer_.commit(got.bytes);
    if (!got.ok) co_return;
  }
  asio::steady_timer never(more_.get_executor(), kNever);
  co_await never.async_wait(kAwait);
}

Awaitable<void> HttpConnection::Linger() {
  constexpr double kSilentSeconds = 1, kTotalSeconds = 10;
  Enter(Phase::kWaiting);
  const int64_t start_ns = NowNs();
  SetDeadline(kSilentSeconds);
  co_await channel_->Shutdown();
  while (channel_->is_open() && SecondsSince(start_ns) < kTotalSeconds) {
    SetDeadline(kSilentSeconds);
    if (!co_await channel_->Discard()) break;
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
void HttpConnection::ClearDeadline() { deadline_.expires_at(kNever); }

}  // namespace pinion
