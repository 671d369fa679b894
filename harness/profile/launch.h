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
  // Of the server, or of the proxy in front of several replicas (front.h).
  std::string host = "127.0.0.1";
  int port = 8000;
  std::optional<std::string> served_model_name;
  std::string profile_path;  // for the servers to show its evidence; empty: they show none
};

// The machine and environment to launch a profile in.
struct LaunchEnvironment {
  Machine machine;
  Budget budget;
  Json fingerprint;      // MachineFingerprint(machine)
  RuntimeOffer runtime;  // libraries that can be preloaded, huge pages
};
Result<LaunchEnvironment> InspectEnvironment();

struct LaunchedServer {
  Command command;                       // `pinion serve ...`, with the environment it needs
  std::optional<std::vector<int>> cpus;  // that its process may run on; unset: this process's
};

struct Launch {
  std::vector<LaunchedServer> servers;  // one for each replica
  std::vector<std::string>
      warnings;  // differences from the machine that the profile was measured on
};

// Checks that the profile can run here and lists the differences. Errors (exit code 1) only if
// it cannot: the model or the ISA path is missing, the binding names CPUs that are gone.
// A different machine, fewer CPUs or a missing library are warnings: it runs, but was not measured
// so. Several replicas listen on 127.0.0.1 on the ports that follow, share the memory that is free
// and run on CPUs of their own; kUsage if there are no such ports. vLLM's environment variables
// beat the profile, as everywhere; a warning says so.
Result<Launch> PlanLaunch(const LaunchRequest& request, const LaunchEnvironment& here);

}  // namespace pinion::harness
