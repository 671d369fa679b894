#include "engine/run/follow.h"

#include <csignal>
#include <string>
#include <utility>

#include "engine/base/log.h"
#include "engine/comm/world.h"
#include "engine/exec/leading_executor.h"
#include "engine/exec/order.h"
#include "engine/run/join_processes.h"
#include "engine/run/start.h"

namespace pinion {
namespace {

// If it fails, so does the leader, which says why.
void FollowModel(Communicator& world, const std::string& start_text) {
  const auto options = OptionsOf(start_text);
  if (!options)
    return static_cast<void>(StartTogether(world, {}, Unexpected(Error(options.error()))));
  if (const auto model = StartModel(*options)) FollowExecutor(*model->executor, world);
}

}  // namespace

int FollowLeader() {
  // A launcher sends its signals to all; the leader ends in order, and tells when.
  for (const int stop : {SIGTERM, SIGINT, SIGHUP}) std::signal(stop, SIG_IGN);
  SetLogLevel(LogLevel::kWarning);
  const auto joined = JoinWorld();
  if (!joined) {
    LogError(joined.error().message);
    return ExitCode(joined.error());
  }
  Communicator& world = **joined;
  for (;;) {
    const Order order = AwaitOrder(world);
    if (order.kind == OrderKind::kEnd) break;
    FollowModel(world, order.payload);
  }
  LeaveWorld(0);
  return 0;
}

void ReleaseFollowers(int code) {
  const auto joined = JoinWorld();
  if (!joined || !*joined) return;
  Send(**joined, {OrderKind::kEnd});
  LeaveWorld(code);
}

}  // namespace pinion
