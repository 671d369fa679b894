#include "harness/counters/listeners.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/descriptor.h"

namespace pinion::harness {
namespace {

TEST(Listeners, AreTheProcessesThatHoldThePortsSocket) {
  Descriptor socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int port = ntohs(address.sin_port);
  EXPECT_TRUE(ListeningProcesses(port).empty()) << "bound, and does not listen";
  ASSERT_EQ(listen(socket_fd.get(), 1), 0);
  EXPECT_THAT(ListeningProcesses(port), testing::Contains(getpid()));
  EXPECT_TRUE(ListeningProcesses(port == 1 ? 2 : 1).empty());
  const Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  const Descriptor accepted(accept4(socket_fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_GE(accepted.get(), 0);
  socket_fd = Descriptor();
  EXPECT_TRUE(ListeningProcesses(port).empty()) << "the end of a connection listens to nothing";
}

}  // namespace
}  // namespace pinion::harness
