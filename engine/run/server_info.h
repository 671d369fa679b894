#pragma once

#include "engine/base/json.h"
#include "engine/run/engine.h"
#include "engine/run/start.h"
#include "engine/sched/scheduler.h"

namespace pinion {

// An engine's part of /server_info, but for the role that it shares with others
// (Engine::ServerInfo).
Json ServerInfoOf(const StartedModel& model, const EngineStats& stats,
                  const SchedulerStats& scheduled);

}  // namespace pinion
