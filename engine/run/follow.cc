#include "engine/run/follow.h"

#include <csignal>
#include <string>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/comm/world.h"
#include "engine/exec/leading_executor.h"
#include "engine/exec/order.h"
#include "engine/run/meet.h"
#include "engine/run/start.h"

namespace pinion {
namespace {

// The leader's options: another version may have others.
Status ReadOptions(const std::string& text, EngineOptions& options) {
  auto json = Json::Parse(text);
  Status read = json ? FromJson(*json, options) : Unexpected(std::move(json).error());
  if (read) return {};
  return Unexpected(
      std::move(read).error().In(StrCat("Pinion ", Version(), " reading the leader's options")));
}

// If it fails, so does the leader, which says why.
void FollowModel(Communicator& world, const std::string& options) {
  EngineOptions engine;
  if (Status read = ReadOptions(options, engine); !read)
    return static_cast<void>(StartTogether(world, engine, std::move(read)));
  if (const auto model = StartModel(engine)) FollowExecutor(*model->executor, world);
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
