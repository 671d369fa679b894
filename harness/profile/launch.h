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
  std::string host = "127.0.0.1";
  int port = kUsualPort;
  std::optional<std::string> served_model_name;
  std::vector<std::string> allowed_hosts;  // besides the names of the server's machine
  std::vector<std::string> launcher = {};  // words before the command: mpirun and its flags
  std::string profile_path = {};  // for the server to show its evidence; empty: it shows none
};

// The machine and environment to launch a profile in.
struct LaunchEnvironment {
  Machine machine;
  Budget budget;
  Json fingerprint;      // MachineFingerprint(machine)
  RuntimeOffer runtime;  // libraries that can be preloaded, huge pages
};
Result<LaunchEnvironment> InspectEnvironment();

struct Launch {
  Command command;  // `pinion serve ...`, with the environment it needs
  // Differences from the machine that the profile was measured on.
  std::vector<std::string> warnings;
};

// Checks that the profile can run here and lists the differences. Errors (exit code 1) only if
// it cannot: the model or the ISA path is missing, there are more ranks than CPUs. A binding on
// CPUs that cannot be used here is planned again on those that can (replan.h). A different machine,
// fewer CPUs or a missing library are warnings: it runs, but was not measured so. vLLM's
// environment variables beat the profile, as everywhere; a warning says so.
Result<Launch> PlanLaunch(const LaunchRequest& request, const LaunchEnvironment& here);

}  // namespace pinion::harness
