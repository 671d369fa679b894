#include "harness/load/generator.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "engine/base/descriptor.h"

namespace pinion::harness {
namespace {

// A thousand clients are a thousand connections.
TEST(ServerLoad, RaisesTheLimitOfDescriptors) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 300;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto result = RunServerLoad({.url = *ParseServerUrl("http://127.0.0.1:1")}, {});
  EXPECT_TRUE(result) << result.error().message;
  rlimit after;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

// A port of 127.0.0.1 at which connections are made, and nothing is ever said.
struct SilentServer {
  SilentServer() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket.get(), any, size), 0);
    EXPECT_EQ(listen(socket.get(), 1), 0);
    EXPECT_EQ(getsockname(socket.get(), any, &size), 0);
    port = ntohs(address.sin_port);
  }
  const Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  int port = 0;
};

TEST(TokenScale, AServerThatNeverAnswersIsGivenUpAtTheDeadline) {
  const SilentServer server;
  LoadedServer loaded{.url = ServerUrl::OfPort(server.port)};
  const Status scale = MeasureTokenScale(loaded, 0.1);
  ASSERT_FALSE(scale);
  EXPECT_EQ(scale.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(scale.error().message, testing::HasSubstr("the first request had no whole answer"));
}

TEST(TokenScale, AnInterruptionIsNotARefusal) {
  const SilentServer server;
  LoadedServer loaded{.url = ServerUrl::OfPort(server.port)};
  const Status scale = MeasureTokenScale(loaded, 600, {.interrupted = [] { return true; }});
  ASSERT_FALSE(scale);
  EXPECT_EQ(scale.error().message, "interrupted");
}

}  // namespace
}  // namespace pinion::harness
