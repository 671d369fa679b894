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
#include "engine/serve/http_channel.h"
#include "engine/serve/http_parser.h"
#include "engine/serve/http_reply.h"

namespace pinion {

class HttpConnection;

// State that the server owns and shares with its connections.
struct HttpShared {
  HttpOptions options;
  HttpServer::Handler handler;
  TlsContext tls;  // null: plain
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
  // In the order in which connections make way for newcomers.
  enum class Phase { kWaiting /* for a request or its header */, kBody, kAnswer };

  HttpConnection(boost::asio::ip::tcp::socket socket, HttpShared& shared);
  ~HttpConnection();

  // Answers requests until the connection ends.
  Awaitable<void> Run();
  // While draining: nothing more will come from an idle connection.
  void CloseIfIdle();
  // Closes it for a newcomer.
  void MakeWay();

  Phase phase() const { return phase_; }
  int64_t phase_since_ns() const { return phase_since_ns_; }

 private:
  // Reads one request and answers it. False: close the connection.
  Awaitable<bool> Exchange();
  Awaitable<bool> ReadAndAnswer(AccessRecord& record);
  Awaitable<bool> WaitForFirstByte();
  // Reads up to the end of the header, or of the request. False: the client has gone, or the parser
  // refuses the request.
  Awaitable<bool> ReadHeader(HttpParser& parser, AccessRecord& record);
  Awaitable<bool> ReadBody(HttpParser& parser, AccessRecord& record);
  Awaitable<bool> Feed(HttpParser& parser, bool to_the_end, AccessRecord& record);
  // Gives an answer that no handler has made.
  Awaitable<bool> Refuse(const HttpRefusal& refusal, BufferedReply& reply, AccessRecord& record);
  Awaitable<bool> Answer(HttpRequest request, std::shared_ptr<BufferedReply> reply,
                         AccessRecord& record);
  // `memory`: the share that unsent bytes are taken from; null: none.
  std::shared_ptr<BufferedReply> MakeReply(bool http11, bool keep_alive,
                                           const std::shared_ptr<MemoryBudget>& memory,
                                           const std::string& client) const;

  // Writes the answer as it is produced, to its end. False if the client left or is too slow.
  Awaitable<bool> WriteAll(BufferedReply& reply, AccessRecord& record);
  // Until the reply has more, or a comment is due.
  Awaitable<void> WaitForMore(BufferedReply& reply);
  // The reply has more: writes at once what the socket accepts, and wakes WriteAll for the rest.
  void OnMore();
  // Returns when the client closes its side. Only reading detects that, so bytes that arrive in the
  // meantime (pipelined requests) are buffered, up to a limit beyond which the client must wait.
  Awaitable<void> WatchForEnd();
  // Closing a socket with unread input resets the connection, and the client may lose our last
  // answer: keep reading for a moment, until the client has seen our end and closed its own.
  Awaitable<void> Linger();

  void Enter(Phase phase);
  void Abandon();
  // Closes the socket after `seconds`, which ends any operation waiting for it.
  void SetDeadline(double seconds);
  void ClearDeadline();

  HttpShared& shared_;
  std::string address_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer more_;  // cancelled when the reply has more
  std::unique_ptr<Channel> channel_;
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<BufferedReply> reply_;
  AccessRecord* record_ = nullptr;  // of the reply
  int64_t written_ns_ = 0;          // when a byte of it last went out
  Phase phase_ = Phase::kWaiting;
  int64_t phase_since_ns_;
  bool idle_ = false;
  bool waits_for_more_ = false;
};

}  // namespace pinion
