#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "engine/serve/http.h"
#include "tests/engine/serve/client.h"
#include "tests/engine/serve/tls_client.h"

namespace pinion {
namespace {

using testing::HasSubstr;

class Https : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = testing::TempDir();
    certfile_ = folder / "https_test.crt";
    keyfile_ = folder / "https_test.key";
    WriteCertificate(certfile_, keyfile_);
  }
  HttpOptions Options() const {
    HttpOptions options;
    options.port = 0;
    options.ssl_certfile = certfile_;
    options.ssl_keyfile = keyfile_;
    return options;
  }
  void Start(const HttpOptions& options) {
    auto server = HttpServer::Listen(options, [this](HttpRequest request, auto reply) {
      if (request.path != "/stream") return reply->Send(200, "text/plain", request.body);
      reply->Begin("text/event-stream");
      reply->Write("one ");
      server_->Post([reply] {
        reply->Write("two");
        reply->End();
      });
    });
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    thread_ = std::thread([this] { server_->Run(); });
  }
  void TearDown() override {
    if (!server_) return;
    server_->Post([this] { server_->Stop(); });
    thread_.join();
    server_.reset();
  }

  std::string certfile_, keyfile_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(Https, WarnsOfACertificateThatIsNotValidNow) {
  const auto warning = [this](int begin_seconds, int end_seconds) {
    WriteCertificate(certfile_, keyfile_, begin_seconds, end_seconds);
    testing::internal::CaptureStderr();
    EXPECT_TRUE(HttpServer::Listen(Options(), [](HttpRequest, auto) {}));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning(-60, 3600), "");
  EXPECT_THAT(warning(-7200, -3600), HasSubstr("https_test.crt has expired at 2"));
  EXPECT_THAT(warning(3600, 7200), HasSubstr("https_test.crt is not valid before 2"));
}

TEST_F(Https, ServesTls) {
  Start(Options());
  TlsClient client(server_->port());
  ASSERT_TRUE(client.connected());
  const std::string large(300'000, 'x');  // many records, both ways
  for (int i = 0; i < 2; ++i) {
    client.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n" + large);
    EXPECT_THAT(client.ReadUntil(large), HasSubstr("200 OK"));
    client.Send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(client.ReadUntil("0\r\n\r\n"), HasSubstr("4\r\none \r\n3\r\ntwo\r\n"));
  }
  client.Send("GET /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.ReadUntil(""), HasSubstr("200 OK"));
}

TEST_F(Https, SurvivesATlsHandshakeThatStops) {
  HttpOptions options = Options();
  options.header_seconds = 0.2;
  Start(options);
  RawClient silent(server_->port()), plain(server_->port()), half(server_->port());
  plain.Send("GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  half.Send("\x16\x03\x01\x02");
  EXPECT_THAT(plain.ReadAll(), testing::Not(HasSubstr("200 OK")));
  silent.ReadAll();  // closed by the server, or this waits in vain
  half.ReadAll();
  TlsClient client(server_->port());
  EXPECT_TRUE(client.connected());
}

TEST_F(Https, NamesTheFileThatItCannotUse) {
  HttpOptions options = Options();
  options.ssl_certfile = "/no/such.crt";
  auto server = HttpServer::Listen(options, [](auto, auto) {});
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, ErrorCode::kUsage);
  EXPECT_THAT(server.error().message, HasSubstr("/no/such.crt: No such file"));
  options.ssl_certfile = certfile_;
  options.ssl_keyfile = certfile_ + ".other";
  WriteCertificate(certfile_ + ".unused", options.ssl_keyfile);  // the key of another certificate
  server = HttpServer::Listen(options, [](auto, auto) {});
  ASSERT_FALSE(server);
  EXPECT_THAT(server.error().message, HasSubstr(options.ssl_keyfile));
}

}  // namespace
}  // namespace pinion
