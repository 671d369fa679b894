// How exchanges and the server itself begin and end.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "engine/base/strings.h"
#include "tests/engine/serve/client.h"
#include "tests/engine/serve/http_fixture.h"

namespace pinion {
namespace {

using testing::HasSubstr;

using HttpLife = HttpTest;

TEST_F(HttpLife, ReportsAClientThatDisconnects) {
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

TEST_F(HttpLife, LogsEveryExchange) {
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

TEST_F(HttpLife, DrainFinishesLiveRepliesAndClosesIdleConnections) {
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

TEST_F(HttpLife, DrainEndsAtItsLimit) {
  Start();
  RawClient busy(port_);
  busy.Send("GET /hold HTTP/1.1\r\n\r\n");
  WaitFor(holding_, 1);
  server_->Post([this] { server_->Drain(0.1); });
  EXPECT_TRUE(Await([this] { return returned_.load(); }));
}

TEST_F(HttpLife, ReportsWhyItCannotListen) {
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
