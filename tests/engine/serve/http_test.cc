#include "engine/serve/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/serve/http_reply.h"
#include "tests/engine/serve/client.h"
#include "tests/engine/serve/http_fixture.h"

namespace pinion {
namespace {

using testing::HasSubstr;
using testing::Not;

using Http = HttpTest;

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

TEST_F(Http, RefusesABodyBeforeTheClientSendsIt) {
  HttpOptions options;
  options.max_body_bytes = 10;
  Start(options);
  // Nothing follows the header: the client waits.
  const std::string got =
      Exchange(port_, "POST /echo HTTP/1.1\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(StatusOf(got), "413");
  EXPECT_THAT(got, HasSubstr("Connection: close"));
  EXPECT_EQ(StatusOf(Exchange(port_, "POST /echo HTTP/1.1\r\nContent-Length: 11\r\n\r\n")), "413");
}

TEST_F(Http, ContinuesNoRequestOfHttp10) {
  Start();
  EXPECT_EQ(StatusOf(Exchange(port_,
                              "POST /echo HTTP/1.0\r\nContent-Length: 2\r\n"
                              "Expect: 100-continue\r\n\r\nhi")),
            "200");
}

TEST_F(Http, TakesEmptyLinesBeforeARequest) {
  Start();
  const std::string all =
      Exchange(port_,
               "\r\nPOST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nfirst\r\n"
               "POST /echo HTTP/1.1\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecond\r\n");
  EXPECT_EQ(Count(all, "HTTP/1.1 200 OK"), 2u) << all;
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

TEST_F(Http, WritesAllPartsInOrderToASlowReader) {
  Start();
  RawClient slow(port_);
  slow.Send("GET /long HTTP/1.0\r\n\r\n");
  std::string expected;
  for (int i = 0; i < kLongParts; ++i) expected += LongPart(i);
  // More than the sockets hold, so that writes are partial and wait.
  ASSERT_GT(expected.size(), 6u << 20);
  WaitFor(long_ended_, 1);
  EXPECT_TRUE(BodyOf(slow.ReadAll()) == expected);
}

TEST_F(Http, TellsTheHandlerTheClient) {
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

TEST(BufferedReply, SaysWhenThereIsNoMemoryForTheAnswer) {
  const auto budget = std::make_shared<MemoryBudget>(200'000);
  const auto others = MemoryShare::Take(budget, "b", 100'000);
  const auto held = MemoryShare::Take(budget, "c", 60'000);
  BufferedReply reply(true, true, 1 << 20, *MemoryShare::Take(budget, "a", 0));
  reply.Send(200, "text/plain", std::string(50'000, 'x'));
  EXPECT_EQ(reply.status(), 503);
  const std::string sent(reply.Unsent());
  EXPECT_THAT(sent, HasSubstr("Retry-After: 5"));
  EXPECT_THAT(sent, HasSubstr("(--request-memory)"));
  EXPECT_EQ(budget->rejections(), 1u);
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

TEST_F(Http, WritesCommentsOnlyWhenSilent) {
  HttpOptions options;
  options.sse_keep_alive_seconds = 0.05;
  Start(options);
  RawClient client(port_);
  client.Send("GET /events HTTP/1.1\r\n\r\n");
  const std::string got = client.ReadUntil("\n\n\r\ne\r\n: keep-alive\n\n\r\ne\r\n: keep-alive");
  EXPECT_EQ(Count(got, "data: first"), 1u);
  // An answer that is not a stream of events is left alone, as is one that is not silent.
  BufferedReply text(true, true, 1 << 20), events(true, true, 1 << 20);
  text.Begin("text/plain");
  text.KeepAlive();
  EXPECT_THAT(std::string(text.Unsent()), Not(HasSubstr("keep-alive\n")));
  events.Begin("text/event-stream; charset=utf-8");
  events.KeepAlive();
  EXPECT_THAT(std::string(events.Unsent()), HasSubstr(": keep-alive\n\n"));
}

}  // namespace
}  // namespace pinion
