#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>

#include "engine/base/process.h"
#include "harness/engines/server.h"

namespace pinion::harness {
namespace {

constexpr int kLookMs = 50;

// Whether the other end of standard input is closed: nobody ever writes to it.
bool ParentGone() {
  pollfd end = {STDIN_FILENO, POLLIN, 0};
  return poll(&end, 1, kLookMs) > 0 && (end.revents & (POLLHUP | POLLIN | POLLERR)) != 0;
}

}  // namespace

int GuardServer(const std::vector<std::string>& arguments) {
  constexpr int kNotStarted = 127;  // as a shell says it
  // The parent's death must find us alive: we end what the server has started, then ourselves.
  prctl(PR_SET_PDEATHSIG, 0);
  setpgid(0, 0);  // it is so already, unless somebody starts this by hand
  // Meant for the server, which gets it too; not ignored, or the server would inherit that.
  signal(SIGTERM, [](int) {});
  Process::Options options;
  options.arguments = arguments;
  options.own_group = false;
  auto server = Process::Start(options);
  if (!server) {
    std::fprintf(stderr, "pinion: %s\n", server.error().message.c_str());
    return kNotStarted;
  }
  for (;;) {
    if (const auto exit = server->Wait(0)) return exit->signal ? 128 + exit->signal : exit->code;
    if (ParentGone()) kill(0, SIGKILL);
  }
}

}  // namespace pinion::harness
