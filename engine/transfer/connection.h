#pragma once

// For the .cc files of this folder: includes Asio.

#include <atomic>
#include <boost/asio.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/transfer/address.h"
#include "engine/transfer/messages.h"

namespace pinion {

namespace transfer_asio = boost::asio;

// One end of a connection between engines, over TCP or a Unix socket.
// Thread rule: the thread that runs its io_context.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = transfer_asio::generic::stream_protocol::socket;

  // An end to which nothing can be sent for so long is lost: that of a stopped process, say.
  static constexpr double kSendSeconds = 10;

  explicit Connection(Socket socket, double send_seconds = kSendSeconds);

  // The next message, of at most so many bytes; nullopt: there will be none, because the other end
  // has closed the connection, or for error().
  transfer_asio::awaitable<std::optional<TransferMessage>> Receive(size_t most_bytes);
  void Send(std::string frame);
  // Receive ends. Unsent frames are dropped.
  void Close();
  // Closes it unless KeepOpen is called within so many seconds.
  void CloseAfter(double seconds);
  void KeepOpen() { deadline_.cancel(); }
  // From now on: a sign of life so often, unless something is being sent anyway.
  void SendSignsOfLife(double period_s);
  // From now on: closes it once not a byte has come for so many seconds, or up to a quarter more.
  // Only time in Receive counts.
  void CloseIfSilent(double seconds);

  // Bytes that wait to be sent; any thread.
  using Unsent = std::shared_ptr<std::atomic<size_t>>;
  const Unsent& unsent() const { return unsent_; }

  const std::string& error() const { return error_; }

 private:
  transfer_asio::awaitable<std::optional<TransferMessage>> ReceiveNow(size_t most_bytes);
  transfer_asio::awaitable<boost::system::error_code> Fill(char* dst, size_t bytes);
  transfer_asio::awaitable<void> Write();
  transfer_asio::awaitable<boost::system::error_code> Put(std::string_view bytes);
  void StartDeadline(transfer_asio::steady_timer& timer, double seconds);
  void ListenOn(double seconds, int silent_quarters);

  Socket socket_;
  const double send_seconds_;
  transfer_asio::steady_timer deadline_, write_deadline_, alive_, silence_;
  const Unsent unsent_ = std::make_shared<std::atomic<size_t>>(0);
  std::deque<std::string> frames_;  // to be sent
  bool writing_ = false, receiving_ = false;
  uint64_t heard_ = 0;  // how often something has come
  std::string error_;
};

inline constexpr auto kTransferAwait =
    transfer_asio::experimental::as_tuple(transfer_asio::use_awaitable);

// A socket on which a lost host is noticed within about 10 s.
void SetUpSocket(Connection::Socket& socket);

transfer_asio::steady_timer::duration TransferSeconds(double seconds);

}  // namespace pinion
