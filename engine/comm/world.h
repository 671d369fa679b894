#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "engine/base/result.h"
#include "engine/comm/communicator.h"

// The processes that were launched together, whatever launched them: all that the engine and the
// commands ask. Each way to be launched is a row in world.cc, a transport; the first that answers
// Launched() is the one in use.

namespace pinion {

// This process's number among those that a launcher started together.
struct LaunchedProcess {
  size_t process = 0, processes = 1;  // one alone is not launched: Launched() answers nothing
  // Among those on this host: they take equal shares of its memory, and of its CPUs if they share
  // them. locals is at least 1, local below it, and no two processes of a host have the same.
  size_t local = 0, locals = 1;
  // Whether the launcher leaves all of the host's CPUs to each of them, so that they must divide
  // them themselves; otherwise each has CPUs of its own.
  bool shares_cpus = false;
};

// From the environment alone; nothing if this process was started alone.
std::optional<LaunchedProcess> Launched();

// A process whose CPUs this one should take instead of its own, since its launcher gave it fewer
// than it can use and nobody asked for that.
std::optional<int> LauncherWithCpus();

// From now on this process counts as one that was started alone: a child of it, started before, is
// in its place.
void LeaveWorldToChild();

// Joins the processes that were launched together, at the first call, for the rest of this
// process's life; null if it is the only one. Waits for all others to join.
Result<Communicator*> JoinWorld();

// Leaves them, if this process joined: the last collective call, after all that this process has to
// write. Waits for all others to call it, watched as before, and then to leave. If one of them or
// the link is lost meanwhile, which is not watched any more, this process cannot leave: after
// SilenceWatch::kLostNs it ends with `code`, the result of its work, and a sentence on standard
// error. Time for which it was itself held up does not count.
void LeaveWorld(int code);

// Ends a world: LeaveWorld passes the one that was joined, tests pass another.
void Leave(std::unique_ptr<Communicator> world, int code);

}  // namespace pinion
