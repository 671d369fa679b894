#include <signal.h>
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
#include "harness/cli/stop_request.h"
#include "harness/profile/front.h"
#include "harness/profile/launch.h"
#include "harness/profile/supervise.h"

namespace pinion::harness {
namespace {

struct LaunchOptions {
  std::string profile;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::optional<std::string> served_model_name;
  bool dry_run = false;
  bool json = false;
  bool haproxy = false;
};

Json ToJson(const LaunchedServer& server) {
  Json environment = Json::MakeObject();
  for (const auto& [name, value] : server.command.environment) environment.Set(name, value);
  Json json = Json::MakeObject();
  json.Set("environment", std::move(environment));
  json.Set("command", server.command.arguments);
  if (server.cpus) json.Set("cpus", *server.cpus);
  return json;
}

// One server's command, or a list of them under "replicas".
Json ToJson(const Launch& launch) {
  Json json = Json::MakeObject();
  if (launch.servers.size() == 1) {
    json = ToJson(launch.servers.front());
  } else {
    Json replicas = Json::MakeArray();
    for (const LaunchedServer& server : launch.servers) replicas.Append(ToJson(server));
    json.Set("replicas", std::move(replicas));
  }
  json.Set("warnings", launch.warnings);
  return json;
}

// One line per server; `taskset` gives its CPUs.
std::string ToText(const Launch& launch) {
  std::vector<std::string> lines;
  for (const LaunchedServer& server : launch.servers)
    lines.push_back(ShellText(OnCpus(server.command, server.cpus)));
  return Join(lines, "\n");
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

Status PrintFront(const LaunchOptions& options, int replicas) {
  if (replicas == 1)
    return Fail(ErrorCode::kUsage,
                StrCat("the profile has one server, which needs no proxy in front: leave out "
                       "--haproxy"));
  std::printf("%s", HaproxyText(options.host, options.port, replicas).c_str());
  return {};
}

// A single server replaces this process; several run as its children until one of them ends or this
// process is stopped.
Status Start(const Launch& launch, const LaunchOptions& options) {
  const size_t count = launch.servers.size();
  if (count == 1) return Become(launch.servers.front().command);
  LogInfo(StrCat(
      count, " replicas listen on ", kReplicaHost, ", ports ", ReplicaPort(options.port, 0), " to ",
      ReplicaPort(options.port, static_cast<int>(count) - 1),
      "; `pinion launch --haproxy` prints a configuration of HAProxy in front of them on port ",
      options.port));
  CatchStopRequests({SIGINT, SIGTERM});
  return Supervise(launch.servers, StopRequested);
}

Status RunLaunch(const LaunchOptions& options) {
  LaunchRequest request{{}, options.host, options.port, options.served_model_name, ""};
  // What a pipe holds can be read only once.
  if (std::filesystem::is_regular_file(options.profile)) request.profile_path = options.profile;
  PINION_ASSIGN(request.profile, ReadProfile(options.profile));
  if (options.haproxy) return PrintFront(options, request.profile.configuration.replicas);
  PINION_ASSIGN(const LaunchEnvironment here, InspectEnvironment());
  PINION_ASSIGN(const Launch launch, PlanLaunch(request, here));
  for (const std::string& warning : launch.warnings) LogWarning(warning);
  if (!options.dry_run) return Start(launch, options);
  std::printf("%s\n", (options.json ? ToJson(launch).Dump(2) : ToText(launch)).c_str());
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
  command->footer(
      "A profile with several replicas starts them all as children, which end together, on the "
      "ports of 127.0.0.1 that follow --port; --host and --port are then for the proxy in "
      "front of them. Each replica has the profile's KV space for itself.");
  auto* dry_run =
      command->add_flag("--dry-run", options->dry_run,
                        "only print the command (one line per replica) and its environment");
  command
      ->add_flag("--haproxy", options->haproxy,
                 "only print an HAProxy configuration for the profile's replicas")
      ->excludes(dry_run);
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
