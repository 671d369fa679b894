#include "engine/serve/http_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/base/strings.h"

namespace pinion {
namespace {

using testing::HasSubstr;

std::string Repeated(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

struct Parsed {
  std::string head, body, rest;
  int status = 0;  // of the refusal
  bool done = false;
  bool operator==(const Parsed&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Parsed& parsed) {
  return out << parsed.head << '|' << parsed.body << '|' << parsed.rest << '|' << parsed.status
             << '|' << parsed.done;
}

// As a connection does it: bytes that were not used come again with what follows.
Parsed Parse(const std::vector<std::string>& pieces, const HttpParser::Limits& limits = {}) {
  HttpParser parser(limits, nullptr);
  Parsed parsed;
  bool took_head = false;
  for (const std::string& piece : pieces) {
    parsed.rest += piece;
    for (bool again = true; again;) {  // once more after the header
      parsed.rest.erase(0, parser.Feed(parsed.rest));
      again = !took_head && parser.header_done();
      if (!again) continue;
      took_head = true;
      const HttpHead head = parser.TakeHead();
      parsed.head = StrCat(head.method, ' ', head.path, ' ', head.query, ' ', head.http11);
      for (const auto& [name, value] : head.headers.fields())
        parsed.head += StrCat('\n', name, '=', value);
    }
    if (parser.done() || parser.refusal()) break;
  }
  parsed.done = parser.done();
  if (parser.refusal()) parsed.status = parser.refusal()->status;
  if (parsed.done) parsed.body = parser.TakeBody();
  return parsed;
}

std::vector<std::string> EachByte(const std::string& text) {
  std::vector<std::string> pieces;
  for (const char c : text) pieces.emplace_back(1, c);
  return pieces;
}

const std::string kRequests[] = {
    "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET http://host:80/a/b?c=d&e HTTP/1.0\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: a\r\nX-Empty:\r\nContent-Length: 11\r\n\r\nhello world",
    ("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n \r\n"
     "5\r\nworld\r\n0\r\nX-Trailer: ignored\r\n\r\n"),
    "\r\n\r\nGET /after/empty/lines HTTP/1.1\r\n\r\n",
    "POST / HTTP/1.1\r\nX-Folded: one\r\n two\r\nContent-Length: 0\r\n\r\n",
};

TEST(HttpParser, AnyCutGivesTheSameRequest) {
  std::mt19937 random(7);
  for (const std::string& request : kRequests) {
    const Parsed whole = Parse({request});
    EXPECT_TRUE(whole.done) << request;
    EXPECT_EQ(whole.rest, "");
    EXPECT_EQ(Parse(EachByte(request)), whole);
    for (size_t cut = 0; cut <= request.size(); ++cut)
      EXPECT_EQ(Parse({request.substr(0, cut), request.substr(cut)}), whole) << cut;
    for (int i = 0; i < 50; ++i) {
      std::vector<std::string> pieces;
      for (size_t at = 0; at < request.size();) {
        const size_t length = 1 + random() % 20;
        pieces.push_back(request.substr(at, length));
        at += length;
      }
      EXPECT_EQ(Parse(pieces), whole);
    }
  }
}

TEST(HttpParser, StopsAtTheEndOfTheHeader) {
  const std::string header = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n";
  HttpParser parser({}, nullptr);
  EXPECT_EQ(parser.Feed(header + "hello"), header.size());
  EXPECT_TRUE(parser.header_done());
  EXPECT_FALSE(parser.done());
}

TEST(HttpParser, RefusesALengthThatIsAnnouncedBeforeTheBodyComes) {
  const auto status = [](const std::string& length, std::shared_ptr<MemoryBudget> memory) {
    HttpParser parser({.body_bytes = 100}, std::move(memory));
    parser.Feed(StrCat("POST / HTTP/1.1\r\nContent-Length: ", length, "\r\n\r\n"));
    EXPECT_FALSE(parser.refusal());
    parser.SetClient("a");
    return parser.refusal() ? parser.refusal()->status : 0;
  };
  EXPECT_EQ(status("100", nullptr), 0);
  EXPECT_EQ(status("101", nullptr), 413);
  EXPECT_EQ(status("51", std::make_shared<MemoryBudget>(100)), 413);
}

TEST(HttpParser, TakesTheHostOfAnAbsoluteTarget) {
  const auto host = [](const std::string& target) {
    HttpParser parser({}, nullptr);
    parser.Feed(StrCat("GET ", target, " HTTP/1.1\r\n\r\n"));
    return parser.TakeHead().host;
  };
  EXPECT_EQ(host("/path"), std::nullopt);
  EXPECT_EQ(host("//a/path"), std::nullopt);
  EXPECT_EQ(host("http://a:80/path"), "a:80");
  EXPECT_EQ(host("HTTPS://b?c"), "b");
  EXPECT_EQ(host("http://"), "");
}

TEST(HttpParser, LeavesTheNextRequestAlone) {
  const Parsed parsed = Parse({kRequests[2] + "GET /next HTTP/1.1\r\n"});
  EXPECT_EQ(parsed.body, "hello world");
  EXPECT_EQ(parsed.rest, "GET /next HTTP/1.1\r\n");
}

TEST(HttpParser, RefusesRequestsThatItCannotBound) {
  const HttpParser::Limits limits{.header_bytes = 200, .header_fields = 10, .body_bytes = 100};
  const std::string start = "POST / HTTP/1.1\r\n", field = "X: y\r\n";
  std::string fields, long_fields;
  for (int i = 0; i < 11; ++i) fields += field;
  for (int i = 0; i < 9; ++i) long_fields += StrCat("X: ", std::string(30, 'y'), "\r\n");
  const std::pair<std::string, int> cases[] = {
      {start + "X: " + std::string(200, 'x') + "\r\n\r\n", 431},  // one long field
      {start + long_fields + "\r\n", 431},                        // many short ones
      {start + fields + "\r\n", 431},
      {Repeated("\r\n", 101), 431},
      {"\r\r\n" + start + "\r\n", 400},
      {"POST /" + std::string(300, 'x') + " HTTP/1.1\r\n\r\n", 431},
      {start + "Content-Length: 101\r\n\r\n" + std::string(101, 'x'), 413},
      {start + "Transfer-Encoding: chunked\r\n\r\n65\r\n" + std::string(101, 'x'), 413},
      {start + "Transfer-Encoding: chunked\r\n\r\n" + std::string(500, '0'), 400},
      {start + "Content-Length: -1\r\n\r\n", 400},
      {start + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400},
      {start + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", 400},
      {"GET / HTTP/2.0\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x01", 400},
  };
  for (const auto& [request, status] : cases) {
    EXPECT_EQ(Parse({request}, limits).status, status) << request;
    EXPECT_EQ(Parse(EachByte(request), limits).status, status) << request;
  }
  // At the limits.
  const std::string header = start + "Content-Length: 100\r\nX: ";
  const std::string exact = header + std::string(200 - header.size() - 4, 'x') + "\r\n\r\n";
  EXPECT_TRUE(Parse({exact + std::string(100, 'x')}, limits).done);
  EXPECT_TRUE(Parse(EachByte(exact + std::string(100, 'x')), limits).done);
}

// Headers that two parsers might read differently are refused before the body is read.
TEST(HttpParser, RefusesBodiesOfUnknownLengthOrCoding) {
  const std::string start = "POST / HTTP/1.1\r\n", end = "\r\n\r\n0\r\n\r\n";
  const std::pair<std::string, int> cases[] = {
      {start + "Transfer-Encoding: gzip" + end, 501},
      {start + "Transfer-Encoding: gzip, chunked" + end, 501},
      {start + "Transfer-Encoding: chunked, gzip" + end, 501},
      {start + "Transfer-Encoding: xchunked" + end, 501},
      {start + "Transfer-Encoding: identity\r\nContent-Length: 5" + end, 501},
      {start + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked" + end, 501},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked" + end, 400},
      {start + "Content-Encoding: gzip\r\nContent-Length: 5" + end, 415},
  };
  for (const auto& [request, status] : cases) {
    EXPECT_EQ(Parse({request}).status, status) << request;
    EXPECT_EQ(Parse(EachByte(request)).status, status) << request;
  }
  EXPECT_TRUE(Parse({start + "Transfer-Encoding: Chunked" + end}).done);
  EXPECT_TRUE(Parse({start + "Content-Encoding: identity\r\nContent-Length: 5" + end}).done);
}

TEST(HttpParser, BelievesNoChunkThatCannotFit) {
  const HttpParser::Limits limits{.body_bytes = 100};
  const std::string start = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string size : {"65", "ffffffffffffffff"})
    EXPECT_EQ(Parse({start + size + "\r\n"}, limits).status, 413) << size;
  const std::string most = start + "60\r\n" + std::string(96, 'x') + "\r\n";
  EXPECT_EQ(Parse({most + "5\r\n"}, limits).status, 413);
  EXPECT_TRUE(Parse({most + "4\r\nabcd\r\n0\r\n\r\n"}, limits).done);
}

TEST(HttpParser, TakesTargetsInAbsoluteForm) {
  const auto head = [](const std::string& target) {
    return Parse({"GET " + target + " HTTP/1.1\r\n\r\n"}).head;
  };
  EXPECT_EQ(head("http://host/a?b"), "GET /a b 1");
  EXPECT_EQ(head("HTTPS://host:8/a"), "GET /a  1");
  EXPECT_EQ(head("http://host"), "GET /  1");
  EXPECT_EQ(head("http://host?a/b"), "GET / a/b 1");
  EXPECT_EQ(head("/http://host/a"), "GET /http://host/a  1");
}

TEST(HttpParser, TakesMemoryAsBytesArrive) {
  const auto budget = std::make_shared<MemoryBudget>(100'000);
  {
    HttpParser liar({}, budget);
    liar.Feed("POST / HTTP/1.1\r\nContent-Length: 45000\r\n\r\n");
    ASSERT_TRUE(liar.header_done());
    EXPECT_EQ(budget->used(), 0u);
    liar.SetClient("a");
    liar.Feed(std::string(1000, 'x'));
    EXPECT_GE(budget->used(), 1000u);
    EXPECT_LE(budget->used(), 2000u);
  }
  EXPECT_EQ(budget->used(), 0u);
}

// A client's second body is refused for what its first one holds; another's is not.
TEST(HttpParser, RefusesBodiesThatFindNoMemory) {
  const auto budget = std::make_shared<MemoryBudget>(100'000);
  const auto read = [&](HttpParser& parser, const char* client, size_t bytes) {
    parser.Feed(StrCat("POST / HTTP/1.1\r\nContent-Length: ", bytes, "\r\n\r\n"));
    parser.SetClient(client);
    parser.Feed(std::string(bytes, 'x'));
    return parser.refusal();
  };
  HttpParser first({}, budget), second({}, budget), other({}, budget), last({}, budget);
  EXPECT_FALSE(read(first, "a", 40'000));
  const auto refused = read(second, "a", 10'001);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 503);
  EXPECT_EQ(refused->headers.at(0).first, "Retry-After");
  EXPECT_THAT(refused->body, HasSubstr("this client's other requests"));
  EXPECT_THAT(refused->body, HasSubstr("(--request-memory)"));
  EXPECT_FALSE(read(other, "b", 50'000));
  const auto full = read(last, "c", 10'001);
  ASSERT_TRUE(full);
  EXPECT_EQ(full->status, 503);
  EXPECT_THAT(full->body, HasSubstr("(--request-memory), which others use now"));
  EXPECT_EQ(budget->rejections(), 2u);
}

TEST(HttpParser, RefusesBodiesThatNoClientMaySend) {
  const auto budget = std::make_shared<MemoryBudget>(100'000);
  HttpParser hopeless({}, budget);
  hopeless.Feed("POST / HTTP/1.1\r\nContent-Length: 50001\r\n\r\n");
  hopeless.SetClient("a");
  hopeless.Feed("x");
  ASSERT_TRUE(hopeless.refusal());
  EXPECT_EQ(hopeless.refusal()->status, 413);
  EXPECT_THAT(hopeless.refusal()->body, HasSubstr("--request-memory"));
  EXPECT_EQ(budget->rejections(), 0u);  // it will not pass later, either
}

TEST(HttpParser, HandsItsMemoryOverWithTheBody) {
  const auto budget = std::make_shared<MemoryBudget>(100'000);
  MemoryShare share;
  {
    HttpParser parser({}, budget);
    parser.Feed("POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n");
    parser.Feed(std::string(5000, 'x'));
    ASSERT_TRUE(parser.done());
    share = parser.TakeMemory();
    EXPECT_EQ(parser.TakeBody().size(), 5000u);
  }
  EXPECT_EQ(budget->used(), share.bytes());
  EXPECT_GE(share.bytes(), 5000u);
}

}  // namespace
}  // namespace pinion
