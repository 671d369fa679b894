#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "harness/cli/commands.h"
#include "harness/profile/launch.h"

namespace pinion::harness {
namespace {

struct LaunchOptions {
  std::string profile;
  std::string host = "127.0.0.1";
  int port = kUsualPort;
  std::optional<std::string> served_model_name;
  bool dry_run = false;
  bool json = false;
};

Json ToJson(const Launch& launch) {
  Json environment = Json::MakeObject();
  for (const auto& [name, value] : launch.command.environment) environment.Set(name, value);
  Json json = Json::MakeObject();
  json.Set("environment", std::move(environment));
  json.Set("command", launch.command.arguments);
  json.Set("warnings", launch.warnings);
  return json;
}

// Turns this process into the server, so that signals and exit codes are the server's own.
Status Become(const Command& command) {
  for (const auto& [name, value] : command.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : command.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));  // execv does not write to them
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  return Fail(ErrorCode::kIo, StrCat("starting ", arguments[0], ": ", std::strerror(errno)));
}

Status RunLaunch(const LaunchOptions& options) {
  LaunchRequest request{{}, options.host, options.port, options.served_model_name, ""};
  // What a pipe holds can be read only once.
  if (std::filesystem::is_regular_file(options.profile)) request.profile_path = options.profile;
  PINION_ASSIGN(request.profile, ReadProfile(options.profile));
  PINION_ASSIGN(const LaunchEnvironment here, InspectEnvironment());
  PINION_ASSIGN(const Launch launch, PlanLaunch(request, here));
  for (const std::string& warning : launch.warnings) LogWarning(warning);
  if (!options.dry_run) return Become(launch.command);
  std::printf("%s\n", (options.json ? ToJson(launch).Dump(2) : ShellText(launch.command)).c_str());
  return {};
}

}  // namespace

// `pinion launch`: start the server that a profile describes. Exit 1: it cannot run here.
void AddLaunch(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<LaunchOptions>();
  auto* command = app.add_subcommand("launch", "Start the server that a sweep's profile describes");
  command->add_option("PROFILE", options->profile, "a profile that `pinion sweep` wrote")
      ->required();
  command->add_option("--host", options->host, "address to listen on")->capture_default_str();
  command->add_option("--port", options->port, "port to listen on")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--served-model-name", options->served_model_name,
                      "the model's name in the API (default: as in the profile)");
  auto* dry_run = command->add_flag("--dry-run", options->dry_run,
                                    "only print the command and its environment");
  command
      ->add_flag("--json", options->json,
                 "with --dry-run: print JSON instead of text, with the warnings")
      ->needs(dry_run);
  command->callback([options, &exit_code] {
    const Status done = RunLaunch(*options);
    exit_code = done ? 0 : Report(done.error());
  });
}

}  // namespace pinion::harness
