#include "engine/serve/http_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/ssl.hpp>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using asio::ip::tcp;
using boost::system::error_code;

class SocketChannel : public Channel {
 public:
  Awaitable<bool> Discard() final {
    char scrap[16 << 10];
    const auto [error, count] = co_await socket().async_read_some(asio::buffer(scrap), kAwait);
    co_return !error;
  }
  void Close() final {
    error_code ignored;
    socket().close(ignored);
  }
  bool is_open() final { return socket().is_open(); }

 protected:
  virtual tcp::socket& socket() = 0;
  void EndWriting() {
    error_code ignored;
    socket().shutdown(tcp::socket::shutdown_send, ignored);
  }
};

class PlainChannel final : public SocketChannel {
 public:
  explicit PlainChannel(tcp::socket socket) : socket_(std::move(socket)) {}

  Awaitable<bool> Handshake() override { co_return true; }
  Awaitable<IoResult> Read(asio::mutable_buffer dst) override {
    const auto [error, count] = co_await socket_.async_read_some(dst, kAwait);
    co_return IoResult{!error, count};
  }
  Awaitable<IoResult> Write(asio::const_buffer src) override {
    const auto [error, count] = co_await socket_.async_write_some(src, kAwait);
    co_return IoResult{!error, count};
  }
  size_t TryWrite(std::string_view src) override {
    const ssize_t count =
        send(socket_.native_handle(), src.data(), src.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return count < 0 ? 0 : static_cast<size_t>(count);
  }
  Awaitable<void> Shutdown() override {
    EndWriting();
    co_return;
  }

 private:
  tcp::socket& socket() override { return socket_; }
  tcp::socket socket_;
};

class TlsChannel final : public SocketChannel {
 public:
  TlsChannel(tcp::socket socket, TlsContext context)
      : context_(std::move(context)), stream_(std::move(socket), *context_) {}

  Awaitable<bool> Handshake() override {
    const auto [error] = co_await stream_.async_handshake(ssl::stream_base::server, kAwait);
    co_return !error;
  }
  Awaitable<IoResult> Read(asio::mutable_buffer dst) override {
    const auto [error, count] = co_await stream_.async_read_some(dst, kAwait);
    co_return IoResult{!error, count};
  }
  Awaitable<IoResult> Write(asio::const_buffer src) override {
    const auto [error, count] = co_await stream_.async_write_some(src, kAwait);
    co_return IoResult{!error, count};
  }
  // The stream cannot take back a record of which the socket accepted a part.
  size_t TryWrite(std::string_view) override { return 0; }
  Awaitable<void> Shutdown() override {
    co_await stream_.async_shutdown(kAwait);
    EndWriting();
  }

 private:
  tcp::socket& socket() override { return stream_.next_layer(); }
  TlsContext context_;
  ssl::stream<tcp::socket> stream_;
};

// "2026-03-01 12:34 UTC"
std::string DateText(const ASN1_TIME* time) {
  tm utc{};
  char text[32] = "";
  if (ASN1_TIME_to_tm(time, &utc) == 1)
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

// Such a server answers, but no client that checks its certificate accepts it.
void WarnOfDates(ssl::context& context, const std::string& certfile) {
  const X509* certificate = SSL_CTX_get0_certificate(context.native_handle());
  const ASN1_TIME* begin = X509_get0_notBefore(certificate);
  const ASN1_TIME* end = X509_get0_notAfter(certificate);
  const auto warn = [&](const char* what, const ASN1_TIME* time) {
    LogWarning(StrCat("the certificate in ", certfile, what, DateText(time),
                      "; clients will refuse it (--ssl-certfile)"));
  };
  if (X509_cmp_current_time(end) < 0) return warn(" has expired at ", end);
  if (X509_cmp_current_time(begin) > 0) warn(" is not valid before ", begin);
}

// OpenSSL's own reasons leave out the system's.
Status CheckReadable(const std::string& path, const char* what, const char* flag) {
  if (access(path.c_str(), R_OK) == 0) return {};
  return Fail(ErrorCode::kUsage, StrCat("cannot use the ", what, " in ", path, ": ",
                                        std::strerror(errno), " (", flag, ")"));
}

}  // namespace

Result<TlsContext> LoadTls(const std::string& certfile, const std::string& keyfile) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  error_code error;
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  context->set_options(ssl::context::default_workarounds | ssl::context::single_dh_use, error);
  // Clients could otherwise make the server compute handshakes on one connection without end.
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION);
  // Without a callback OpenSSL would ask at the terminal.
  context->set_password_callback([](size_t, ssl::context::password_purpose) { return ""; }, error);
  PINION_TRY(CheckReadable(certfile, "certificate", "--ssl-certfile"));
  context->use_certificate_chain_file(certfile, error);
  if (error)
    return Fail(ErrorCode::kUsage, StrCat("cannot use the certificate in ", certfile, ": ",
                                          error.message(), "; want a PEM file (--ssl-certfile)"));
  const std::string& key = keyfile.empty() ? certfile : keyfile;
  PINION_TRY(CheckReadable(key, "private key", "--ssl-keyfile"));
  context->use_private_key_file(key, ssl::context::pem, error);
  if (error)
    return Fail(ErrorCode::kUsage,
                StrCat("cannot use the private key in ", key, ": ", error.message(),
                       "; want a PEM file without a passphrase that belongs to the certificate "
                       "(--ssl-keyfile)"));
  WarnOfDates(*context, certfile);
  return context;
}

std::unique_ptr<Channel> MakeChannel(tcp::socket socket, const TlsContext& tls) {
  if (tls) return std::make_unique<TlsChannel>(std::move(socket), tls);
  return std::make_unique<PlainChannel>(std::move(socket));
}

}  // namespace pinion
