#include "harness/profile/launch.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/checkpoint/model.h"
#include "engine/host/binding.h"
#include "engine/run/replicas.h"
#include "harness/profile/replan.h"

namespace pinion::harness {
namespace {

// A profile that cannot be launched is a failure (exit code 1), even if the part of the engine that
// refused it reports bad usage: the user's command was correct.
Error CannotLaunch(Error error) {
  if (error.code == ErrorCode::kUsage) error.code = ErrorCode::kFailed;
  return std::move(error).In("the profile cannot be launched here");
}

// One sentence for all differences, so that a kernel update does not bury the others.
void CompareMachines(const Json& measured, const Json& here, std::vector<std::string>& warnings) {
  std::vector<std::string> differences;
  for (const auto& [key, value] : measured.object()) {
    const Json* now = here.Find(key);
    if (now && *now == value) continue;
    const bool short_enough = !value.is_array() && !value.is_object() && now;
    differences.push_back(short_enough ? StrCat(key, " was ", value.Dump(), ", is ", now->Dump())
                                       : StrCat(key, " differ"));
  }
  if (differences.empty()) return;
  warnings.push_back(StrCat("this is not the machine that the profile was measured on (",
                            Join(differences, "; "),
                            "): `pinion sweep` finds the best settings for this machine"));
}

void CompareCpus(const Json& measured, const Budget& budget, std::vector<std::string>& warnings) {
  std::vector<int> gone;
  for (const Json& cpu : measured.array()) {
    const int id = static_cast<int>(cpu.integer());
    if (!std::binary_search(budget.cpus.begin(), budget.cpus.end(), id)) gone.push_back(id);
  }
  if (gone.empty()) return;
  warnings.push_back(StrCat("CPUs ", FormatCpuList(gone), ", which the profile was measured on, ",
                            "cannot be used here; allowed are ", FormatCpuList(budget.cpus)));
}

Result<Plan> PlanOf(EngineOptions options, int replicas, const LaunchEnvironment& here) {
  options.has_frontend = true;
  return PlanReplicas(options, replicas, here.machine, here.budget);
}

Result<EngineOptions> WithEnvironment(EngineOptions options, std::vector<std::string>& warnings) {
  const Json before = ToJson(options);
  PINION_TRY(ReadEnvironment(options));
  const Json after = ToJson(options);
  for (const auto& [key, value] : after.object()) {
    const Json* measured = before.Find(key);
    if (measured && *measured == value) continue;
    warnings.push_back(StrCat("the environment sets ", key, " to ", value.Dump(),
                              " in place of the ", "profile's ",
                              measured ? measured->Dump() : "default"));
  }
  return options;
}

// Lists that this process was given in the environment are the user's own, and stay.
void PlanAgain(const Configuration& profile, const LaunchEnvironment& here, EngineOptions& options,
               std::vector<std::string>& warnings) {
  if (options.threads_bind != profile.options.threads_bind) return;
  const auto lists =
      ListsHere(options, options.ranks() * profile.replicas, here.machine, here.budget);
  if (!lists) return;
  warnings.push_back(StrCat("threads_bind is ", *lists, " in place of the profile's ",
                            options.threads_bind, ", of which not all CPUs can be used here"));
  options.threads_bind = *lists;
}

// Unavailable settings keep the system's default, with a warning.
std::vector<std::pair<std::string, std::string>> ChooseRuntime(const RuntimeChoice& choice,
                                                               const LaunchEnvironment& here,
                                                               std::vector<std::string>& warnings) {
  RuntimeChoice possible;
  for (const RuntimeSetting& setting : RuntimeSettings()) {
    RuntimeChoice alone;
    alone.*setting.member = choice.*setting.member;
    const auto environment = EnvironmentOf(alone, here.runtime);
    if (environment) possible.*setting.member = choice.*setting.member;
    if (!environment)
      warnings.push_back(
          StrCat(setting.key, " keeps the system's default: ", environment.error().message));
  }
  return *EnvironmentOf(possible, here.runtime);  // each was possible by itself
}

Command CommandOf(const LaunchRequest& request, const Configuration& configuration) {
  Command command = ServeCommand(configuration, request.host, request.port);
  auto& arguments = command.arguments;
  arguments.insert(arguments.begin(), request.launcher.begin(), request.launcher.end());
  if (request.served_model_name)
    arguments.insert(arguments.end(), {"--served-model-name", *request.served_model_name});
  for (const std::string& name : request.allowed_hosts)
    arguments.insert(arguments.end(), {"--allowed-hosts", name});
  if (!request.profile_path.empty())
    arguments.insert(arguments.end(), {"--from-profile", request.profile_path});
  return command;
}

}  // namespace

Result<LaunchEnvironment> InspectEnvironment() {
  LaunchEnvironment here;
  PINION_ASSIGN(here.machine, ThisMachine());
  PINION_ASSIGN(here.budget, ComputeBudget(here.machine));
  here.fingerprint = MachineFingerprint(here.machine);
  here.runtime = RuntimeOffer::Here();
  return here;
}

Result<Launch> PlanLaunch(const LaunchRequest& request, const LaunchEnvironment& here) {
  Launch launch;
  const Profile& profile = request.profile;
  auto options = WithEnvironment(profile.configuration.options, launch.warnings);
  if (!options) return Unexpected(CannotLaunch(std::move(options).error()));
  if (auto model = FindModel(options->model); !model)
    return Unexpected(CannotLaunch(std::move(model).error()));
  if (auto valid = Validate(*options); !valid)
    return Unexpected(CannotLaunch(std::move(valid).error()));
  CompareMachines(profile.machine, here.fingerprint, launch.warnings);
  CompareCpus(profile.cpus, here.budget, launch.warnings);
  PlanAgain(profile.configuration, here, *options, launch.warnings);
  auto plan = PlanOf(*options, profile.configuration.replicas, here);
  if (!plan) return Unexpected(CannotLaunch(std::move(plan).error()));
  const Json* measured = profile.evidence.is_object() ? profile.evidence.Find("plan") : nullptr;
  if (const auto differs = DifferenceOfPlans(measured, *plan)) launch.warnings.push_back(*differs);
  launch.warnings.insert(launch.warnings.end(), plan->warnings.begin(), plan->warnings.end());
  Configuration configuration = profile.configuration;
  configuration.options = *options;
  launch.command = CommandOf(request, configuration);
  launch.command.environment = ChooseRuntime(profile.configuration.runtime, here, launch.warnings);
  return launch;
}

}  // namespace pinion::harness
