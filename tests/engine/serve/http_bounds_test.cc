// Limits of the bytes that clients send, hold and leave unread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/serve/client.h"
#include "tests/engine/serve/http_fixture.h"

namespace pinion {
namespace {

using testing::HasSubstr;
using testing::Not;

using HttpBounds = HttpTest;

TEST_F(HttpBounds, RefusesBodiesAndHeadersAboveTheirLimits) {
  HttpOptions options;
  options.max_body_bytes = 1000;
  options.max_header_bytes = 2000;
  Start(options);
  EXPECT_EQ(StatusOf(Post(port_, "/echo", std::string(1000, 'x'))), "200");
  EXPECT_EQ(StatusOf(Post(port_, "/echo", std::string(1001, 'x'))), "413");
  EXPECT_EQ(StatusOf(Exchange(port_,
                              "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                              "800\r\n" +
                                  std::string(2048, 'x') + "\r\n0\r\n\r\n")),
            "413");
  EXPECT_EQ(StatusOf(Get(port_, "/" + std::string(5000, 'x'))), "431");
}

TEST_F(HttpBounds, ClosesConnectionsThatStall) {
  HttpOptions options;
  options.idle_seconds = options.header_seconds = options.body_seconds = 0.2;
  Start(options);
  RawClient silent(port_), header(port_), body(port_);
  header.Send("GET /echo HTTP/1.1\r\nHos");
  body.Send("POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nsome");
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_THAT(header.ReadAll(), Not(HasSubstr("200 OK")));
  EXPECT_THAT(body.ReadAll(), Not(HasSubstr("200 OK")));
}

TEST_F(HttpBounds, CutsOffAClientThatDoesNotReadWithoutHoldingUpOthers) {
  HttpOptions options;
  options.max_unsent_bytes = 1 << 20;
  Start(options);
  RawClient slow(port_);
  slow.Send("GET /flood HTTP/1.1\r\n\r\n");
  EXPECT_EQ(StatusOf(Post(port_, "/echo", "")), "200");
  WaitFor(gone_, 1);
}

TEST_F(HttpBounds, APartThatIsLargerThanTheLimitIsNotASlowReader) {
  HttpOptions options;
  options.max_unsent_bytes = 1 << 20;
  Start(options);
  const std::string got = Get(port_, "/burst");
  EXPECT_EQ(StatusOf(got), "200");
  EXPECT_EQ(Count(BodyOf(got), "b"), 1 + kBurstBytes + kBurstBytes / 4);
}

TEST_F(HttpBounds, GivesMemoryBackAfterEachExchange) {
  HttpOptions options;
  options.memory = std::make_shared<MemoryBudget>(800'000);
  Start(options);
  const std::string body(100'000, 'x');
  for (int i = 0; i < 20; ++i) EXPECT_EQ(BodyOf(Post(port_, "/echo", body)), body);
  EXPECT_EQ(StatusOf(Post(port_, "/echo", std::string(900'000, 'x'))), "413");
  RawClient half(port_);
  half.Send("POST /echo HTTP/1.1\r\nContent-Length: 390000\r\n\r\n" + std::string(200'000, 'x'));
  Await([&] { return options.memory->used() >= 200'000; });
  const std::string refused = Post(port_, "/echo", std::string(390'000, 'x'));
  EXPECT_EQ(StatusOf(refused), "503");
  EXPECT_THAT(refused, HasSubstr("Retry-After: "));
  EXPECT_EQ(StatusOf(Post(port_, "/echo", "small")), "200");
  half.Close();
  Await([&] { return options.memory->used() == 0; });
  EXPECT_EQ(options.memory->used(), 0u);
}

TEST_F(HttpBounds, OneClientLeavesTheOthersHalfOfTheMemory) {
  HttpOptions options;
  options.memory = std::make_shared<MemoryBudget>(800'000);
  options.check = [](const HttpHead& head) {
    HttpVerdict verdict;
    verdict.client = head.headers.Find("Authorization");
    return verdict;
  };
  Start(options);
  const auto ask = [&](const char* client, size_t bytes) {
    return Exchange(port_, StrCat("POST /echo HTTP/1.1\r\nAuthorization: ", client,
                                  "\r\nConnection: close\r\nContent-Length: ", bytes, "\r\n\r\n",
                                  std::string(bytes, 'x')));
  };
  RawClient unfinished(port_);
  unfinished.Send("POST /echo HTTP/1.1\r\nAuthorization: a\r\nContent-Length: 390001\r\n\r\n" +
                  std::string(390'000, 'x'));
  Await([&] { return options.memory->used() >= 390'000; });
  const std::string refused = ask("a", 20'000);
  EXPECT_EQ(StatusOf(refused), "503");
  EXPECT_THAT(refused, HasSubstr("this client's other requests hold too much"));
  EXPECT_EQ(StatusOf(ask("b", 100'000)), "200");
}

TEST_F(HttpBounds, CutsOffSlowReadersWhenMemoryIsOut) {
  HttpOptions options;
  options.max_unsent_bytes = 256 << 20;
  options.memory = std::make_shared<MemoryBudget>(1 << 20);
  Start(options);
  RawClient slow(port_);
  slow.Send("GET /flood HTTP/1.1\r\n\r\n");
  WaitFor(gone_, 1);
  EXPECT_LT(flooded_bytes_, 64u << 20);  // the budget, and what the sockets hold
  Await([&] { return options.memory->used() == 0; });
  EXPECT_EQ(options.memory->used(), 0u);
}

TEST_F(HttpBounds, ClosesTheLongestIdleForANewcomer) {
  HttpOptions options;
  options.max_connections = 4;
  Start(options);
  RawClient busy(port_), a(port_), b(port_), c(port_);
  busy.Send("GET /hold HTTP/1.1\r\n\r\n");
  WaitFor(holding_, 1);
  const auto ask = [](RawClient& client) {
    client.Send("POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello");
    return client.ReadUntil("hello");
  };
  for (RawClient* client : {&a, &b, &c, &a}) EXPECT_THAT(ask(*client), HasSubstr("200 OK"));
  EXPECT_EQ(StatusOf(Post(port_, "/echo", "newcomer")), "200");
  EXPECT_EQ(b.ReadAll(), "");
  EXPECT_THAT(ask(a), HasSubstr("200 OK"));
  EXPECT_THAT(ask(c), HasSubstr("200 OK"));
  server_->Post([this] { held_.back()->Send(200, "text/plain", "done"); });
  EXPECT_THAT(busy.ReadUntil("done"), HasSubstr("200 OK"));
}

// When there is no memory, an operator wants to see why.
TEST_F(HttpBounds, TellsOfTheServerWithoutRequestMemory) {
  HttpOptions options;
  options.memory = std::make_shared<MemoryBudget>(100'000);
  const auto own = MemoryShare::Take(options.memory, "me", 50'000);
  options.check = [](const HttpHead& head) {
    HttpVerdict verdict;
    verdict.client = "me";
    verdict.tells_of_server = head.query == "metrics";
    return verdict;
  };
  Start(options);
  EXPECT_EQ(StatusOf(Get(port_, "/large")), "503");
  const std::string told = Get(port_, "/large?metrics");
  EXPECT_EQ(StatusOf(told), "200");
  EXPECT_EQ(BodyOf(told).size(), kLargeBytes);
}

}  // namespace
}  // namespace pinion
