#include "harness/profile/launch.h"

#include <algorithm>
#include <utility>

#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "engine/host/binding.h"
#include "engine/model/model.h"
#include "engine/run/start.h"

namespace pinion::harness {
namespace {

// A profile that cannot be launched is a failure (exit code 1) whatever the part of the engine that
// refused calls it: the person used the command rightly.
Error CannotLaunch(Error error) {
  if (error.code == ErrorCode::kUsage) error.code = ErrorCode::kFailed;
  return std::move(error).In("the profile cannot be launched here");
}

// One sentence for all of what differs, so that a kernel update does not bury the rest.
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
                            Join(differences, "; "), "): `pinion sweep` finds what is best here"));
}

void CompareCpus(const Json& measured, const Budget& budget, std::vector<std::string>& warnings) {
  std::vector<int> gone;
  for (const Json& cpu : measured.array()) {
    const int id = static_cast<int>(cpu.integer());
    if (!std::binary_search(budget.cpus.begin(), budget.cpus.end(), id)) gone.push_back(id);
  }
  if (gone.empty()) return;
  warnings.push_back(StrCat("CPUs ", FormatCpuList(gone), ", which the profile was measured on, ",
                            "may not be used here; allowed are ", FormatCpuList(budget.cpus)));
}

Result<Plan> PlanOf(EngineOptions options, const Surroundings& here) {
  options.has_frontend = true;
  return PlanFor(options, here.machine, here.budget);
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

// What is not to be had is left as the system has it, and told of.
void ChooseRuntime(const RuntimeChoice& choice, const Surroundings& here, Launch& launch) {
  RuntimeChoice possible;
  for (const RuntimeSetting& setting : RuntimeSettings()) {
    RuntimeChoice alone;
    alone.*setting.member = choice.*setting.member;
    const auto environment = EnvironmentOf(alone, here.runtime);
    if (environment) possible.*setting.member = choice.*setting.member;
    if (!environment)
      launch.warnings.push_back(
          StrCat(setting.key, " is left as the system has it: ", environment.error().message));
  }
  const auto environment = EnvironmentOf(possible, here.runtime);  // each was possible by itself
  for (const auto& variable : *environment) launch.command.environment.push_back(variable);
}

}  // namespace

Result<Surroundings> LookAround() {
  Surroundings here;
  PINION_ASSIGN(here.machine, ThisMachine());
  PINION_ASSIGN(here.budget, ComputeBudget(here.machine));
  here.fingerprint = MachineFingerprint(here.machine);
  here.runtime = RuntimeOffer::Here();
  return here;
}

Result<Launch> PlanLaunch(const LaunchRequest& request, const Surroundings& here) {
  Launch launch;
  const Profile& profile = request.profile;
  auto options = WithEnvironment(profile.options, launch.warnings);
  if (!options) return Unexpected(CannotLaunch(std::move(options).error()));
  if (auto model = FindModel(options->model); !model)
    return Unexpected(CannotLaunch(std::move(model).error()));
  if (auto valid = Validate(*options); !valid)
    return Unexpected(CannotLaunch(std::move(valid).error()));
  CompareMachines(profile.machine, here.fingerprint, launch.warnings);
  CompareCpus(profile.cpus, here.budget, launch.warnings);
  auto plan = PlanOf(*options, here);
  if (!plan) return Unexpected(CannotLaunch(std::move(plan).error()));
  launch.warnings.insert(launch.warnings.end(), plan->warnings.begin(), plan->warnings.end());
  ChooseRuntime(profile.runtime, here, launch);

  auto& arguments = launch.command.arguments;
  arguments = {SelfPath(), "serve"};
  const auto engine = EngineArguments(*options);
  arguments.insert(arguments.end(), engine.begin(), engine.end());
  arguments.insert(arguments.end(), {"--host", request.host, "--port", StrCat(request.port)});
  if (request.served_model_name)
    arguments.insert(arguments.end(), {"--served-model-name", *request.served_model_name});
  return launch;
}

}  // namespace pinion::harness
