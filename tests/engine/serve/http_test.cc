#include "engine/serve/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "engine/base/strings.h"
#include "engine/serve/http_reply.h"
#include "tests/engine/serve/client.h"

namespace pinion {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t Count(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size())
    ++count;
  return count;
}

// /echo answers the body at once, /stream a stream of two parts, /flood more than any client reads,
// /hold keeps its reply for later, as /events does with a stream that has begun, /who answers what
// is known of the request, /long a stream of many parts of all sizes.
class Http : public testing::Test {
 protected:
  void Start(HttpOptions options = {}) {
    options.port = 0;
    auto server = HttpServer::Listen(
        options, [this](HttpRequest request, auto reply) { Handle(request, std::move(reply)); });
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    port_ = server_->port();
    thread_ = std::thread([this] {
      server_->Run();
      returned_ = true;
    });
  }
  void TearDown() override {
    if (!server_) return;
    server_->Post([this] { server_->Stop(); });
    thread_.join();
    held_.clear();
    server_.reset();
  }

  void Handle(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    if (request.path == "/echo") return reply->Send(200, "text/plain", request.body);
    if (request.path == "/hold") {
      reply->OnGone([this] { ++gone_; });
      held_.push_back(std::move(reply));
      ++holding_;
      return;
    }
    if (request.path == "/who")
      return reply->Send(200, "text/plain",
                         Join({request.method, request.query, request.id, request.client,
                               request.address, std::string(request.headers.Find("x-one"))},
                              "|"));
    if (request.path == "/events") {
      reply->Begin("text/event-stream");
      reply->Write("data: first\n\n");
      held_.push_back(std::move(reply));
      return;
    }
    if (request.path == "/long") {
      reply->Begin("text/plain");
      return Continue(std::move(reply), 0);
    }
    if (request.path == "/stream") {
      reply->Begin("text/event-stream");
      reply->Write("one ");
      server_->Post([reply] {
        reply->Write("two");
        reply->End();
      });
      return;
    }
    if (request.path == "/flood") {
      reply->OnGone([this] { ++gone_; });
      reply->Begin("text/plain");
      return Flood(std::move(reply));
    }
    reply->Send(404, "text/plain", "");
  }

  void Flood(std::shared_ptr<HttpReply> reply) {
    if (gone_ > 0) return;
    reply->Write(std::string(64 << 10, 'x'));
    flooded_bytes_ += 64 << 10;
    server_->Post([this, reply] { Flood(reply); });
  }

  static std::string LongPart(int number) {
    return StrCat('<', number, std::string(static_cast<size_t>(number * 37 % 9000), 'x'), '>');
  }
  static constexpr int kLongParts = 1500;
  void Continue(std::shared_ptr<HttpReply> reply, int number) {
    if (number == kLongParts) return reply->End();
    reply->Write(LongPart(number));
    server_->Post([this, reply, number] { Continue(reply, number + 1); });
  }

  void WaitFor(const std::atomic<int>& value, int wanted) {
    Await([&] { return value >= wanted; });
    EXPECT_GE(value, wanted);
  }

  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
  std::thread thread_;
  std::atomic<bool> returned_{false};
  std::atomic<int> gone_{0}, holding_{0};
  std::atomic<size_t> flooded_bytes_{0};
  std::vector<std::shared_ptr<HttpReply>> held_;  // of the server's thread
};

TEST_F(Http, AnswersAndKeepsTheConnection) {
  Start();
  RawClient client(port_);
  for (int i = 0; i < 3; ++i) {
    client.Send("POST /echo?x=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    EXPECT_THAT(client.ReadUntil("hello"), HasSubstr("Connection: keep-alive"));
  }
}

TEST_F(Http, TakesTheAbsoluteFormOfTheTarget) {
  Start();
  EXPECT_EQ(BodyOf(Exchange(port_,
                            "POST HTTP://host:80/echo?x=/y HTTP/1.1\r\nHost: host:80\r\n"
                            "Content-Length: 2\r\nConnection: close\r\n\r\nhi")),
            "hi");
}

TEST_F(Http, AnswersPipelinedRequestsInOrder) {
  Start();
  RawClient client(port_);
  client.Send(
      "POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nfirst"
      "GET /stream HTTP/1.1\r\n\r\n"
      "POST /echo HTTP/1.1\r\nContent-Length: 5\r\nConnection: close\r\n\r\nthird");
  const std::string all = client.ReadAll();
  EXPECT_LT(all.find("first"), all.find("one "));
  EXPECT_LT(all.find("two"), all.find("third"));
  EXPECT_EQ(Count(all, "HTTP/1.1 200 OK"), 3u);
}

TEST_F(Http, StreamsInChunksToHttp11AndPlainlyToHttp10) {
  Start();
  const std::string chunked =
      Exchange(port_, "GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(chunked, HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_EQ(BodyOf(chunked), "4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n");
  const std::string plain = Exchange(port_, "GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_THAT(plain, Not(HasSubstr("chunked")));
  EXPECT_EQ(BodyOf(plain), "one two");
}

TEST_F(Http, AnswersHeadWithoutABody) {
  Start();
  const std::string got =
      Exchange(port_, "HEAD /echo HTTP/1.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
  EXPECT_EQ(StatusOf(got), "200");
  EXPECT_EQ(BodyOf(got), "");
}

TEST_F(Http, AnswersHeadOfAStreamWithItsHeaderAlone) {
  Start();
  const std::string got = Exchange(port_,
                                   "HEAD /stream HTTP/1.1\r\n\r\n"
                                   "POST /echo HTTP/1.1\r\nContent-Length: 4\r\n"
                                   "Connection: close\r\n\r\nnext");
  EXPECT_EQ(BodyOf(got).find("HTTP/1.1 200 OK"), 0u) << got;
  EXPECT_THAT(got, Not(HasSubstr("one")));
  EXPECT_THAT(got, HasSubstr("next"));
}

TEST_F(Http, ContinuesWhenTheClientAsksFirst) {
  Start();
  RawClient client(port_);
  client.Send("POST /echo HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("100 Continue"));
  client.Send("hi");
  EXPECT_THAT(client.ReadUntil("hi"), HasSubstr("200 OK"));
}

TEST_F(Http, RefusesBytesThatAreNotHttp) {
  Start();
  for (const char* hostile :
       {"\r\n\r\n\r\n", "GARBAGE\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET  HTTP/1.1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"}) {
    RawClient client(port_);
    client.Send(hostile);
    client.CloseWriting();
    EXPECT_THAT(client.ReadAll(), Not(HasSubstr("200 OK"))) << hostile;
  }
  EXPECT_EQ(StatusOf(Post(port_, "/echo", "still alive")), "200");
}

TEST_F(Http, RefusesBodiesAndHeadersAboveTheirLimits) {
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

TEST_F(Http, ClosesConnectionsThatStall) {
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

TEST_F(Http, ReportsAClientThatDisconnects) {
  Start();
  {
    RawClient client(port_);
    client.Send("GET /hold HTTP/1.1\r\n\r\n");
    WaitFor(holding_, 1);
    EXPECT_EQ(gone_, 0);
  }
  WaitFor(gone_, 1);
  server_->Post([this] { held_.back()->Send(200, "text/plain", "too late"); });
  EXPECT_EQ(StatusOf(Post(port_, "/echo", "")), "200");
}

TEST_F(Http, CutsOffAClientThatDoesNotReadWithoutHoldingUpOthers) {
  HttpOptions options;
  options.max_unsent_bytes = 1 << 20;
  Start(options);
  RawClient slow(port_);
  slow.Send("GET /flood HTTP/1.1\r\n\r\n");
  EXPECT_EQ(StatusOf(Post(port_, "/echo", "")), "200");
  WaitFor(gone_, 1);
}

TEST_F(Http, WritesAllPartsInOrderToASlowReader) {
  Start();
  RawClient slow(port_);
  slow.Send("GET /long HTTP/1.0\r\n\r\n");
  std::string expected;
  for (int i = 0; i < kLongParts; ++i) expected += LongPart(i);
  // More than the sockets hold, so that writes are partial and wait.
  ASSERT_GT(expected.size(), 6u << 20);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(BodyOf(slow.ReadAll()) == expected);
}

TEST_F(Http, TellsTheHandlerWhoAsks) {
  HttpOptions options;
  options.check = [](const HttpHead& head) {
    HttpVerdict verdict;
    verdict.id = "id-7";
    verdict.client = head.headers.Find("Authorization");
    verdict.headers = {{"X-Request-Id", verdict.id}};
    return verdict;
  };
  Start(options);
  const std::string got = Exchange(port_,
                                   "GET /who?a=b HTTP/1.1\r\nHost: x\r\nX-ONE: two\r\n"
                                   "Authorization: me\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(got, HasSubstr("X-Request-Id: id-7\r\n"));
  EXPECT_EQ(BodyOf(got), "GET|a=b|id-7|me|127.0.0.1|two");
}

TEST_F(Http, AsksBeforeReadingTheBody) {
  HttpOptions options;
  options.check = [](const HttpHead& head) {
    HttpVerdict verdict;
    if (head.path == "/denied")
      verdict.refusal = HttpRefusal{401, "{}", {{"WWW-Authenticate", "Bearer"}}};
    if (head.path == "/preflight") verdict.refusal = HttpRefusal{204, "", {}};
    return verdict;
  };
  Start(options);
  RawClient client(port_);
  client.Send("POST /denied HTTP/1.1\r\nContent-Length: 1000000\r\n\r\nsome");
  const std::string got = client.ReadAll();  // ends, so the connection was closed
  EXPECT_EQ(StatusOf(got), "401");
  EXPECT_THAT(got, HasSubstr("WWW-Authenticate: Bearer\r\n"));
  EXPECT_THAT(got, HasSubstr("Connection: close\r\n"));
  // Without a body there is nothing to skip.
  RawClient next(port_);
  next.Send("OPTIONS /preflight HTTP/1.1\r\n\r\n");
  const std::string preflight = next.ReadUntil("\r\n\r\n");
  EXPECT_THAT(preflight, HasSubstr("204 No Content"));
  EXPECT_THAT(preflight, Not(HasSubstr("Content-")));
  next.Send("POST /echo HTTP/1.1\r\nContent-Length: 4\r\n\r\nnext");
  EXPECT_THAT(next.ReadUntil("next"), HasSubstr("200 OK"));
}

TEST_F(Http, GivesMemoryBackAfterEachExchange) {
  HttpOptions options;
  options.memory = std::make_shared<MemoryBudget>(400'000);
  Start(options);
  const std::string body(100'000, 'x');
  for (int i = 0; i < 20; ++i) EXPECT_EQ(BodyOf(Post(port_, "/echo", body)), body);
  EXPECT_EQ(StatusOf(Post(port_, "/echo", std::string(500'000, 'x'))), "413");
  RawClient half(port_);
  half.Send("POST /echo HTTP/1.1\r\nContent-Length: 390000\r\n\r\n" + std::string(200'000, 'x'));
  for (int i = 0; i < 1000 && options.memory->used() < 200'000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::string refused = Post(port_, "/echo", std::string(390'000, 'x'));
  EXPECT_EQ(StatusOf(refused), "503");
  EXPECT_THAT(refused, HasSubstr("Retry-After: "));
  EXPECT_EQ(StatusOf(Post(port_, "/echo", "small")), "200");
  half.Close();
  for (int i = 0; i < 1000 && options.memory->used() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(options.memory->used(), 0u);
}

TEST_F(Http, CutsOffSlowReadersWhenMemoryIsOut) {
  HttpOptions options;
  options.max_unsent_bytes = 256 << 20;
  options.memory = std::make_shared<MemoryBudget>(1 << 20);
  Start(options);
  RawClient slow(port_);
  slow.Send("GET /flood HTTP/1.1\r\n\r\n");
  WaitFor(gone_, 1);
  EXPECT_LT(flooded_bytes_, 64u << 20);  // the budget, and what the sockets hold
  for (int i = 0; i < 1000 && options.memory->used() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(options.memory->used(), 0u);
}

TEST_F(Http, ClosesTheLongestIdleForANewcomer) {
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

TEST_F(Http, WritesCommentsOnlyWhenSilent) {
  HttpOptions options;
  options.sse_keep_alive_seconds = 0.05;
  Start(options);
  RawClient client(port_);
  client.Send("GET /events HTTP/1.1\r\n\r\n");
  const std::string got = client.ReadUntil("\n\n\r\ne\r\n: keep-alive\n\n\r\ne\r\n: keep-alive");
  EXPECT_EQ(Count(got, "data: first"), 1u);
  // An answer that is no stream of events is left alone, as is one that is not silent.
  BufferedReply text(true, true, 1 << 20), events(true, true, 1 << 20);
  text.Begin("text/plain");
  text.KeepAlive();
  EXPECT_THAT(std::string(text.Unsent()), Not(HasSubstr("keep-alive\n")));
  events.Begin("text/event-stream; charset=utf-8");
  events.KeepAlive();
  EXPECT_THAT(std::string(events.Unsent()), HasSubstr(": keep-alive\n\n"));
}

TEST_F(Http, LogsEveryExchange) {
  HttpOptions options;
  std::mutex mutex;
  std::vector<AccessRecord> records;
  std::atomic<int> count = 0;
  options.log = [&](const AccessRecord& record) {
    const std::lock_guard lock(mutex);
    records.push_back(record);
    ++count;
  };
  Start(options);
  Post(port_, "/echo?secret=1", "hello");
  WaitFor(count, 1);
  Exchange(port_, "GARBAGE\r\n\r\n");
  WaitFor(count, 2);
  {
    RawClient client(port_);
    client.Send("GET /hold HTTP/1.1\r\n\r\n");
    WaitFor(holding_, 1);
  }
  WaitFor(count, 3);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(records[0].path, "/echo");
  EXPECT_EQ(records[0].status, 200);
  EXPECT_TRUE(records[0].complete);
  EXPECT_EQ(records[0].client, "127.0.0.1");
  EXPECT_GT(records[0].bytes_in, 5u);
  EXPECT_GT(records[0].bytes_out, 5u);
  EXPECT_EQ(records[1].status, 400);
  EXPECT_EQ(records[2].path, "/hold");
  EXPECT_EQ(records[2].status, 0);
  EXPECT_FALSE(records[2].complete);
}

TEST_F(Http, DrainFinishesLiveRepliesAndClosesIdleConnections) {
  Start();
  RawClient idle(port_), busy(port_);
  busy.Send("GET /hold HTTP/1.1\r\n\r\n");
  WaitFor(holding_, 1);
  server_->Post([this] { server_->Drain(60); });
  EXPECT_EQ(idle.ReadAll(), "");
  EXPECT_FALSE(returned_);
  server_->Post([this] { held_.back()->Send(200, "text/plain", "done"); });
  const std::string answer = busy.ReadAll();
  EXPECT_THAT(answer, HasSubstr("done"));
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
  EXPECT_TRUE(Await([this] { return returned_.load(); }));
}

TEST_F(Http, DrainEndsAtItsLimit) {
  Start();
  RawClient busy(port_);
  busy.Send("GET /hold HTTP/1.1\r\n\r\n");
  WaitFor(holding_, 1);
  server_->Post([this] { server_->Drain(0.1); });
  EXPECT_TRUE(Await([this] { return returned_.load(); }));
}

TEST_F(Http, ReportsWhyItCannotListen) {
  Start();
  HttpOptions taken;
  taken.port = port_;
  auto second = HttpServer::Listen(taken, [](auto, auto) {});
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr(StrCat("127.0.0.1:", port_)));
  HttpOptions bad;
  bad.host = "999.999.999.999";
  auto third = HttpServer::Listen(bad, [](auto, auto) {});
  ASSERT_FALSE(third);
  EXPECT_THAT(third.error().message, HasSubstr("999.999.999.999"));
}

}  // namespace
}  // namespace pinion
