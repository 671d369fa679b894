#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "harness/profile/command.h"
#include "harness/profile/profile.h"

namespace pinion::harness {

struct LaunchRequest {
  Profile profile;
  // Of the server; of several replicas what stands before them has these (front.h).
  std::string host = "127.0.0.1";
  int port = 8000;
  std::optional<std::string> served_model_name;
};

// Where a profile is to be launched.
struct LaunchEnvironment {
  Machine machine;
  Budget budget;
  Json fingerprint;      // MachineFingerprint(machine)
  RuntimeOffer runtime;  // libraries that can be preloaded, huge pages
};
Result<LaunchEnvironment> InspectEnvironment();

struct LaunchedServer {
  Command command;                       // `pinion serve ...`, with the environment it needs
  std::optional<std::vector<int>> cpus;  // where its process may run; unset: where ours may
};

struct Launch {
  std::vector<LaunchedServer> servers;  // one for each replica
  std::vector<std::string> warnings;    // what differs from where the profile was measured
};

// Checks that the profile can run here and says what is different. Errors (exit code 1) only where
// it cannot: the model is missing, the ISA path is not there, the binding names CPUs that are gone.
// A different machine, fewer CPUs or a missing library are warnings: it runs, as nobody measured.
// Several replicas listen on 127.0.0.1 on the ports that follow, share the memory that is free and
// run on CPUs of their own; kUsage where there are no such ports.
// vLLM's environment variables beat the profile, as everywhere; a warning says so.
Result<Launch> PlanLaunch(const LaunchRequest& request, const LaunchEnvironment& here);

}  // namespace pinion::harness
