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

// Whether the parent is gone: it never writes to our standard input, so end of file is the only
// event.
bool ParentGone() {
  pollfd end = {STDIN_FILENO, POLLIN, 0};
  return poll(&end, 1, kLookMs) > 0 && (end.revents & (POLLHUP | POLLIN | POLLERR)) != 0;
}

}  // namespace

int GuardServer(const std::vector<std::string>& arguments) {
  constexpr int kNotStarted = 127;  // a shell's exit code for it
  // The guard must survive its parent: it ends the server's processes, then itself.
  prctl(PR_SET_PDEATHSIG, 0);
  setpgid(0, 0);  // the parent has done so, unless the guard was started by hand
  // SIGTERM is for the server, which gets it too. A handler, because the server would inherit
  // SIG_IGN.
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
