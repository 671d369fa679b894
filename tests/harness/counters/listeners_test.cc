#include "harness/counters/listeners.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/descriptor.h"

namespace pinion::harness {
namespace {

constexpr useconds_t kTickUs = 20'000;  // more than one of those in which starts are counted

// Runs body() in a child, which then sleeps until it is killed.
class Child {
 public:
  template <typename Body>
  explicit Child(const Body& body) {
    usleep(kTickUs);
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    id_ = fork();
    if (id_ == 0) {
      body();
      (void)!write(ready[1], "x", 1);
      for (;;) pause();
    }
    close(ready[1]);
    char told = 0;
    EXPECT_EQ(read(ready[0], &told, 1), 1);
    close(ready[0]);
    usleep(kTickUs);
  }
  ~Child() {
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t id() const { return id_; }

 private:
  pid_t id_ = -1;
};

// The address that a socket is now bound to: this host, at a free port.
sockaddr_in Bound(const Descriptor& socket_fd) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return address;
}

TEST(Listeners, AreStrangersIfTheyAreOlderAndOfNoChild) {
  const Descriptor socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Bound(socket_fd);
  const int port = ntohs(address.sin_port);
  const auto nothing = [&] { close(socket_fd.get()); };
  const Child server(nothing);
  EXPECT_FALSE(ListensAStranger(port, server.id())) << "nobody listens";
  {
    const Child later([&] { listen(socket_fd.get(), 1); });
    ASSERT_THAT(ListeningProcesses(port), testing::Contains(later.id()));
  }
  EXPECT_TRUE(ListensAStranger(port, server.id())) << "this process is older";
  EXPECT_FALSE(ListensAStranger(port, getpid())) << "it is its own";
  const Child later([&] { EXPECT_NE(fcntl(socket_fd.get(), F_GETFD), -1); });
  EXPECT_FALSE(ListensAStranger(port, server.id())) << "one that began later may act for it";
}

TEST(Listeners, AreTheProcessesThatHoldThePortsSocket) {
  Descriptor socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Bound(socket_fd);
  const int port = ntohs(address.sin_port);
  EXPECT_TRUE(ListeningProcesses(port).empty()) << "bound, and does not listen";
  ASSERT_EQ(listen(socket_fd.get(), 1), 0);
  EXPECT_THAT(ListeningProcesses(port), testing::Contains(getpid()));
  EXPECT_TRUE(ListeningProcesses(port == 1 ? 2 : 1).empty());
  const Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const Descriptor accepted(accept4(socket_fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_GE(accepted.get(), 0);
  socket_fd = Descriptor();
  EXPECT_TRUE(ListeningProcesses(port).empty()) << "the end of a connection listens to nothing";
}

}  // namespace
}  // namespace pinion::harness
