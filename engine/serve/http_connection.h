#pragma once

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "engine/serve/http.h"
#include "engine/serve/http_reply.h"

namespace pinion {

class HttpConnection;

// State that the server owns and shares with its connections.
struct HttpShared {
  HttpOptions options;
  HttpServer::Handler handler;
  std::set<HttpConnection*> connections;
  bool draining = false;
  std::function<void()> closed_one;
};

inline std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// One client's connection: handles one request after the other. Owned by its coroutine.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(boost::asio::ip::tcp::socket socket, HttpShared& shared);
  ~HttpConnection();

  // Answers requests until the connection ends.
  boost::asio::awaitable<void> Run();
  // While draining: nothing more will come from an idle connection.
  void CloseIfIdle();

 private:
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;
  class RequestReader;

  // Reads one request and answers it. False: close the connection.
  Awaitable<bool> Exchange();
  Awaitable<bool> WaitForFirstByte();
  Awaitable<bool> ReadRequest(RequestReader& reader);
  // Answers a request that could not be parsed; the connection is closed afterwards.
  Awaitable<void> Refuse(int status, std::string message);
  Awaitable<bool> Answer(HttpRequest request, std::shared_ptr<BufferedReply> reply);
  // Writes the answer as it is produced, to its end. False if the client left or is too slow.
  Awaitable<bool> WriteAll(BufferedReply& reply);
  // Returns when the client closes its side. Only reading detects that, so bytes that arrive in the
  // meantime (pipelined requests) are buffered, up to a limit beyond which the client must wait.
  Awaitable<void> WatchForEnd();
  // Closing a socket with unread input resets the connection, and the client may lose our last
  // answer: keep reading for a moment, until the client has seen our end and closed its own.
  Awaitable<void> Linger();

  void Abandon();
  // Closes the socket after `seconds`, which ends any operation waiting for it.
  void SetDeadline(double seconds);
  void ClearDeadline();

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer more_;  // never expires; cancelled when the reply has more
  boost::beast::flat_buffer buffer_;
  HttpShared& shared_;
  std::shared_ptr<BufferedReply> reply_;
  bool idle_ = false;
};

}  // namespace pinion
