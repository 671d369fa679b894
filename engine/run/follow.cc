#include "engine/run/follow.h"

#include <algorithm>
#include <csignal>
#include <string>

#include "engine/base/check.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/base/wire.h"
#include "engine/comm/mpi_world.h"
#include "engine/run/order.h"
#include "engine/run/start.h"

namespace pinion {
namespace {

void TouchKv(Decoder& decoder, const std::string& payload) {
  uint64_t first = 0, last = 0;
  WireReader reader(payload);
  reader(first, last);
  // A rank without heads has shorter spans, or none.
  const uint64_t count = decoder.kv_pieces().count;
  decoder.TouchKv(std::min(first, count), std::min(last, count));
}

void Compute(Decoder& decoder, const std::string& payload) {
  const auto decoded = Decode(payload);
  CHECK(decoded) << "a step of " << payload.size() << " bytes";
  decoder.Forward(decoded->batch, [](const Worker&, size_t, size_t, float*, size_t) {});
}

// Until the leader unloads the model.
void FollowSteps(Communicator& world, Decoder& decoder) {
  for (;;) {
    const Order order = AwaitOrder(world);
    switch (order.kind) {
      case OrderKind::kForward:
        Compute(decoder, order.payload);
        break;
      case OrderKind::kTouchKv:
        TouchKv(decoder, order.payload);
        break;
      default:
        return;
    }
  }
}

// If it fails, so does the leader, which says why.
void FollowModel(Communicator& world, const std::string& options) {
  EngineOptions engine;
  const auto json = Json::Parse(options);
  CHECK(json && FromJson(*json, engine)) << options;
  if (const auto model = StartModel(engine)) FollowSteps(world, *model->decoder);
}

}  // namespace

int FollowLeader() {
  // A launcher sends its signals to all; the leader ends in order, and tells when.
  for (const int stop : {SIGTERM, SIGINT, SIGHUP}) std::signal(stop, SIG_IGN);
  SetLogLevel(LogLevel::kWarning);
  const auto joined = JoinMpiWorld();
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
  LeaveMpiWorld();
  return 0;
}

void ReleaseFollowers() {
  const auto joined = JoinMpiWorld();
  if (!joined || !*joined) return;
  Send(**joined, {OrderKind::kEnd});
  LeaveMpiWorld();
}

}  // namespace pinion
