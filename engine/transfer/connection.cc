#include "engine/transfer/connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <utility>

#include "engine/base/strings.h"

namespace pinion {

namespace asio = transfer_asio;

Connection::Connection(Socket socket, double send_seconds)
    : socket_(std::move(socket)),
      send_seconds_(send_seconds),
      deadline_(socket_.get_executor()),
      write_deadline_(socket_.get_executor()),
      alive_(socket_.get_executor()),
      silence_(socket_.get_executor()) {}

asio::awaitable<std::optional<TransferMessage>> Connection::Receive(size_t most_bytes) {
  const auto self = shared_from_this();
  receiving_ = true;
  auto message = co_await ReceiveNow(most_bytes);
  receiving_ = false;
  co_return message;
}

asio::awaitable<std::optional<TransferMessage>> Connection::ReceiveNow(size_t most_bytes) {
  char bytes[FrameHeader::kBytes];
  if (const auto error = co_await Fill(bytes, sizeof bytes)) {
    const bool is_end = error == asio::error::eof || error == asio::error::operation_aborted;
    if (!is_end && error_.empty()) error_ = error.message();
    co_return std::nullopt;
  }
  const FrameHeader header = DecodeHeader(bytes);
  if (header.payload_bytes > most_bytes) {
    error_ = StrCat("it announces ", header.payload_bytes, " bytes, and at most ", most_bytes,
                    " are expected");
    co_return std::nullopt;
  }
  std::string payload(header.payload_bytes, '\0');
  if (co_await Fill(payload.data(), payload.size())) {
    if (error_.empty()) error_ = "it ended within a message";
    co_return std::nullopt;
  }
  auto message = DecodePayload(header.type, payload);
  if (!message) error_ = "it sent an unknown message";
  co_return message;
}

// Every part is heard: a long message over a slow link takes longer than any silence.
asio::awaitable<boost::system::error_code> Connection::Fill(char* dst, size_t bytes) {
  while (bytes > 0) {
    auto [error, count] =
        co_await socket_.async_read_some(asio::buffer(dst, bytes), kTransferAwait);
    if (error) co_return error;
    ++heard_;
    dst += count;
    bytes -= count;
  }
  co_return boost::system::error_code();
}

void Connection::Send(std::string frame) {
  if (!socket_.is_open()) return;
  *unsent_ += frame.size();
  frames_.push_back(std::move(frame));
  if (std::exchange(writing_, true)) return;
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this()] { return self->Write(); },
      asio::detached);
}

asio::awaitable<void> Connection::Write() {
  while (!frames_.empty()) {
    const auto error = co_await Put(frames_.front());
    if (error || !socket_.is_open()) {
      writing_ = false;
      Close();
      co_return;
    }
    *unsent_ -= frames_.front().size();
    frames_.pop_front();
  }
  write_deadline_.cancel();
  writing_ = false;
}

// Every part starts the deadline anew, as in Fill.
asio::awaitable<boost::system::error_code> Connection::Put(std::string_view bytes) {
  while (!bytes.empty()) {
    StartDeadline(write_deadline_, send_seconds_);
    auto [error, count] = co_await socket_.async_write_some(asio::buffer(bytes), kTransferAwait);
    if (error) co_return error;
    bytes.remove_prefix(count);
  }
  co_return boost::system::error_code();
}

void Connection::Close() {
  boost::system::error_code ignored;
  deadline_.cancel();
  write_deadline_.cancel();
  alive_.cancel();
  silence_.cancel();
  socket_.close(ignored);
  if (writing_) return;  // the first frame is in use until Write notices
  for (const std::string& frame : frames_) *unsent_ -= frame.size();
  frames_.clear();
}

void Connection::CloseAfter(double seconds) { StartDeadline(deadline_, seconds); }

void Connection::StartDeadline(asio::steady_timer& timer, double seconds) {
  timer.expires_after(TransferSeconds(seconds));
  timer.async_wait([weak = weak_from_this()](boost::system::error_code error) {
    const auto self = weak.lock();
    if (error || !self) return;
    self->error_ = "it took too long";
    self->Close();
  });
}

void Connection::SendSignsOfLife(double period_s) {
  alive_.expires_after(TransferSeconds(period_s));
  alive_.async_wait([weak = weak_from_this(), period_s](boost::system::error_code error) {
    const auto self = weak.lock();
    if (error || !self || !self->socket_.is_open()) return;
    if (!self->writing_) self->Send(EncodeTransfer(AliveMessage{}));
    self->SendSignsOfLife(period_s);
  });
}

void Connection::CloseIfSilent(double seconds) { ListenOn(seconds, 0); }

// In quarters: a process that was stopped itself finds a single one over when it goes on, and then
// reads what has come meanwhile.
void Connection::ListenOn(double seconds, int silent_quarters) {
  constexpr int kQuarters = 4;
  silence_.expires_after(TransferSeconds(seconds / kQuarters));
  silence_.async_wait([weak = weak_from_this(), seconds, silent_quarters,
                       heard = heard_](boost::system::error_code error) {
    const auto self = weak.lock();
    if (error || !self || !self->socket_.is_open()) return;
    const bool is_silent = self->receiving_ && self->heard_ == heard;
    const int quarters = is_silent ? silent_quarters + 1 : 0;
    if (quarters < kQuarters) return self->ListenOn(seconds, quarters);
    self->error_ = StrCat("it has given no sign of life for ", seconds, " s");
    self->Close();
  });
}

void SetUpSocket(Connection::Socket& socket) {
  const int fd = socket.native_handle();
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  // Seconds without an answer, then seconds and number of tries. A Unix socket knows none of it.
  const int on = 1, idle = 4, interval = 2, tries = 3, unanswered_ms = 10'000;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

asio::steady_timer::duration TransferSeconds(double seconds) {
  return std::chrono::duration_cast<asio::steady_timer::duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace pinion
