#include "engine/comm/world.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "engine/comm/heartbeat.h"
#include "engine/comm/mpi_launch.h"
#include "engine/comm/mpi_world.h"

namespace pinion {
namespace {

// A transport between processes, and the launcher that comes with it. None of the functions may be
// null.
struct Transport {
  std::optional<LaunchedProcess> (*launched)();  // as Launched(); the first row that answers wins
  std::optional<int> (*launcher_with_cpus)();    // as LauncherWithCpus(); mostly nothing
  // Makes launched() find nothing, here and in processes started from now on. Of every row, in use
  // or not.
  void (*forget)();
  // Waits for all others. Called once, by a process that launched() answered.
  Result<std::unique_ptr<Communicator>> (*join)();
};
constexpr Transport kTransports[] = {
    {LaunchedByMpi, MpiLauncherWithCpus, ForgetMpi, JoinMpiWorld},
};

const Transport* TransportInUse() {
  for (const Transport& transport : kTransports)
    if (transport.launched()) return &transport;
  return nullptr;
}

// Never destroyed by exit(): a process that fails must not wait for the others to leave, too.
std::unique_ptr<Communicator>& Joined() {
  static auto& world = *new std::unique_ptr<Communicator>();
  return world;
}

// Of the others, once none of them listens any more.
class NoSigns final : public LifeSigns {
 public:
  std::vector<size_t> watched() const override { return {0}; }
  void Send() override {}
  std::vector<size_t> Received() override { return {}; }
};

}  // namespace

std::optional<LaunchedProcess> Launched() {
  const Transport* transport = TransportInUse();
  return transport ? transport->launched() : std::nullopt;
}

std::optional<int> LauncherWithCpus() {
  for (const Transport& transport : kTransports)
    if (const auto launcher = transport.launcher_with_cpus()) return launcher;
  return std::nullopt;
}

void LeaveWorldToChild() {
  for (const Transport& transport : kTransports) transport.forget();
}

Result<Communicator*> JoinWorld() {
  const Transport* transport = TransportInUse();
  if (!transport) return nullptr;
  if (!Joined()) {
    PINION_ASSIGN(Joined(), transport->join());
  }
  return Joined().get();
}

void LeaveWorld(int code) { Leave(std::move(Joined()), code); }

void Leave(std::unique_ptr<Communicator> world, int code) {
  if (!world) return;
  // The last one may unload its model for longer than others would believe it to live without signs
  // of life: they go on until all are here.
  Barrier(*world);
  const Heartbeat patience(std::make_unique<NoSigns>(), [code](size_t) {
    std::fprintf(stderr,
                 "pinion: the model's processes cannot end together: one of them, its host or the "
                 "link was lost after the work was done\n");
    _exit(code);
  });
  world.reset();
}

}  // namespace pinion
