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

// What the connections share with the server, which owns it.
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

// One client's connection: requests one after the other. Belongs to the coroutine that runs it.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(boost::asio::ip::tcp::socket socket, HttpShared& shared);
  ~HttpConnection();

  // Answers requests until the connection's end.
  boost::asio::awaitable<void> Run();
  // While draining: nothing more will come from an idle connection.
  void CloseIfIdle();

 private:
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;
  class RequestReader;

  // Reads one request and answers it. False: the connection is to be closed.
  Awaitable<bool> Exchange();
  Awaitable<bool> WaitForFirstByte();
  Awaitable<bool> ReadRequest(RequestReader& reader);
  // Answers what could not be parsed; the connection is closed afterwards.
  Awaitable<void> Refuse(int status, std::string message);
  Awaitable<bool> Answer(HttpRequest request, std::shared_ptr<BufferedReply> reply);
  // Writes the answer as it comes, until its end. False where the client has gone or is too slow.
  Awaitable<bool> WriteAll(BufferedReply& reply);
  // Returns when the client closes its side. Reading is the only way to see that, so what it sends
  // meanwhile (pipelined requests) is kept, up to a limit beyond which it must wait.
  Awaitable<void> WatchForEnd();
  // A close with unread input resets the connection, and the client may lose our last answer: read
  // on a little while it finishes sending and reacts to the end of ours.
  Awaitable<void> Linger();

  void Abandon();
  // After `seconds` the socket is closed, which ends whatever waits for it.
  void SetDeadline(double seconds);
  void ClearDeadline();

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer news_;  // never expires; cancelled when the reply has more
  boost::beast::flat_buffer buffer_;
  HttpShared& shared_;
  std::shared_ptr<BufferedReply> reply_;
  bool idle_ = false;
};

}  // namespace pinion
