#include "harness/trial/server_load.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// A server that this process did not start, as far as anybody can tell: it is in a session of its
// own and its parent has ended. It computes for a while, and then waits.
struct StrangersServer {
  pid_t id = 0;
  int port = 0;

  StrangersServer() {
    int told[2];
    if (pipe(told) != 0) return;
    const pid_t parent = fork();
    if (parent == 0) {
      setsid();
      if (fork() == 0) Serve(told[1]);
      _exit(0);
    }
    waitpid(parent, nullptr, 0);
    (void)!read(told[0], &id, sizeof id);
    (void)!read(told[0], &port, sizeof port);
    close(told[0]);
    close(told[1]);
  }
  ~StrangersServer() {
    if (id > 0) kill(id, SIGKILL);
  }

  [[noreturn]] static void Serve(int told) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    (void)bind(listener, reinterpret_cast<sockaddr*>(&address), size);
    (void)listen(listener, 1);
    (void)getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    const pid_t id = getpid();
    const int port = ntohs(address.sin_port);
    (void)!write(told, &id, sizeof id);
    (void)!write(told, &port, sizeof port);
    while (clock() < CLOCKS_PER_SEC / 2) {
    }
    alarm(60);  // should the test be killed
    for (;;) pause();
  }
};

TEST(ConditionsUnderLoad, ALocalServersTimeIsItsOwnAndNoDisturbance) {
  const StrangersServer server;
  ASSERT_GT(server.port, 0);
  const ServerUrl url = ServerUrl::OfPort(server.port);
  EXPECT_TRUE(ConditionsUnderLoad(url).knows_own);
  constexpr uint64_t kTicks = 20;  // of the half second that it computes
  const auto of_server = [&] {
    const uint64_t of_this = Conditions::Of({getpid()}).own_ticks;
    return ConditionsUnderLoad(url).own_ticks - of_this;
  };
  // Both are read one after the other, so that another reading may be a tick less.
  uint64_t seen = 0;
  for (int i = 0; i < 500 && seen < kTicks; ++i) {
    usleep(10'000);
    seen = of_server();
  }
  EXPECT_GE(seen, kTicks);
}

TEST(ConditionsUnderLoad, OthersAreUnknownIfTheServersProcessIs) {
  EXPECT_FALSE(ConditionsUnderLoad(ServerUrl::OfPort(1)).knows_own);
  const auto remote = ParseServerUrl("http://192.0.2.1:8000/prefix");
  ASSERT_TRUE(remote);
  EXPECT_TRUE(ConditionsUnderLoad(*remote).knows_own) << "it takes nothing of this machine";
}

}  // namespace
}  // namespace pinion::harness
