#pragma once

#include <boost/asio.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <cstddef>
#include <memory>
#include <string_view>

#include "engine/base/result.h"

namespace boost::asio::ssl {
class context;
}

namespace pinion {

template <typename T>
using Awaitable = boost::asio::awaitable<T>;

// Operations await with their error as a value.
inline constexpr auto kAwait = boost::asio::experimental::as_tuple(boost::asio::use_awaitable);

// The bytes of one connection, plain or encrypted. A Read and a Write may be under way together.
// Closing makes both fail. Thread rule: the event loop's thread.
class Channel {
 public:
  struct IoResult {
    bool ok = false;
    size_t bytes = 0;
  };
  virtual ~Channel() = default;

  // Must have succeeded before anything is read or written.
  virtual Awaitable<bool> Handshake() = 0;
  virtual Awaitable<IoResult> Read(boost::asio::mutable_buffer dst) = 0;
  // Writes some of `src`.
  virtual Awaitable<IoResult> Write(boost::asio::const_buffer src) = 0;
  // Writes at once what needs no waiting and returns how much that was; 0 also for a failure, which
  // the next Write reports. Not while a Write is under way.
  virtual size_t TryWrite(std::string_view src) = 0;
  // Tells the client that nothing more will come.
  virtual Awaitable<void> Shutdown() = 0;
  // Reads what the client still sends after Shutdown, to be thrown away. False at its end.
  virtual Awaitable<bool> Discard() = 0;
  virtual void Close() = 0;
  virtual bool is_open() = 0;
};

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// TLS 1.2 and later, HTTP/1.1 alone. Errors name the file and OpenSSL's reason. `keyfile` empty:
// the key is in `certfile`.
Result<TlsContext> LoadTls(const std::string& certfile, const std::string& keyfile);

// `tls` null: plain.
std::unique_ptr<Channel> MakeChannel(boost::asio::ip::tcp::socket socket, const TlsContext& tls);

}  // namespace pinion
