#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/comm/world.h"
#include "harness/artifacts/artifacts.h"
#include "harness/cli/commands.h"
#include "harness/cli/usage_error.h"
#include "harness/counters/listeners.h"
#include "harness/load/http_client.h"
#include "harness/load/server_url.h"
#include "harness/profile/front.h"
#include "harness/profile/keep_running.h"
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
  bool restart = false;
  std::vector<std::string> allowed_hosts, launcher;
  std::string haproxy, nginx;  // hosts
  std::string artifact;        // its kind
  std::string image;           // empty: the usual one
};

Json ToJson(const Launch& launch) {
  Json environment = Json::MakeObject();
  for (const auto& [name, value] : launch.command.environment) environment.Set(name, value);
  return Json::Object{{"environment", std::move(environment)},
                      {"command", launch.command.arguments},
                      {"warnings", launch.warnings}};
}

// Turns this process into the server, so that signals and exit codes are the server's own.
Status Become(const Command& command) {
  for (const auto& [name, value] : command.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : command.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));  // execvp does not write to them
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  return Fail(ErrorCode::kIo, StrCat("starting ", arguments[0], ": ", std::strerror(errno)));
}

// The URL at which the server tells its health.
Result<ServerUrl> UrlOf(const LaunchOptions& options) {
  const bool is_v6 = options.host.find(':') != std::string::npos;
  if (options.host == "0.0.0.0" || options.host == "::") return ServerUrl::OfPort(options.port);
  PINION_ASSIGN(ServerUrl url, ParseServerUrl(StrCat(is_v6 ? "[" : "", options.host,
                                                     is_v6 ? "]:" : ":", options.port)));
  url.is_local = true;  // an address of this machine: no proxy stands between
  return url;
}

// CLI11 gives any word beside the profile to the last positional, with `--` before it or without.
Status CheckLauncher(const std::vector<std::string>& launcher) {
  if (launcher.empty()) return {};
  const std::vector<std::string> words = OwnWords();
  const size_t behind = launcher.size() + 1;
  if (words.size() > behind && words[words.size() - behind] == "--") return {};
  return Fail(ErrorCode::kUsage,
              StrCat("'", launcher[0], "' is one word too many: launch takes one profile; a ",
                     "command that starts its server stands behind all flags and --"));
}

// Stays beside the server and starts it again; its exit code.
Result<int> StayBeside(const LaunchOptions& options, const Command& command) {
  constexpr double kPatienceSeconds = 1;  // a server that is ready answers at once
  if (Launched())
    return Fail(ErrorCode::kUsage,
                "--restart cannot start processes of mpirun again; have it start mpirun: "
                "pinion launch PROFILE --restart -- mpirun -n 2");
  if (options.port == 0)
    return Fail(ErrorCode::kUsage,
                "--restart wants a --port: with 0 the server would be at another one each time");
  PINION_ASSIGN(const ServerUrl url, UrlOf(options));
  return KeepRunning(command, {}, [url, port = options.port](pid_t server) {
    return HttpFetch(url, "/health", kPatienceSeconds).has_value() &&
           (server == 0 || !ListensAStranger(port, server));
  });
}

bool IsFile(const LaunchOptions& options) {
  return !options.artifact.empty() || !options.haproxy.empty() || !options.nginx.empty();
}

// Text of a file by which another program starts the profile's servers.
Result<std::string> FileOf(const LaunchOptions& options, const Profile& profile) {
  if (const Artifact* artifact = FindArtifact(options.artifact))
    return artifact->text(profile, {options.image.empty() ? PodOptions().image : options.image,
                                    options.served_model_name.value_or("")});
  const FrontAddress listen{options.host, options.port};
  const bool is_haproxy = !options.haproxy.empty();
  PINION_ASSIGN(const auto servers,
                ParseFrontAddresses(is_haproxy ? options.haproxy : options.nginx, kUsualPort,
                                    is_haproxy ? "--haproxy" : "--nginx"));
  return is_haproxy ? HaproxyText(listen, servers) : NginxText(listen, servers);
}

// The exit code.
Result<int> RunLaunch(const LaunchOptions& options) {
  PINION_TRY(CheckLauncher(options.launcher));
  if (!options.image.empty() && options.artifact.empty())
    return Fail(ErrorCode::kUsage, "--image is of the files that --emit and --k8s print: add one");
  LaunchRequest request{{},
                        options.host,
                        options.port,
                        options.served_model_name,
                        options.allowed_hosts,
                        options.launcher};
  // A pipe can be read only once.
  if (std::filesystem::is_regular_file(options.profile)) request.profile_path = options.profile;
  PINION_ASSIGN(request.profile, ReadProfile(options.profile));
  if (IsFile(options)) {
    PINION_ASSIGN(const std::string text, FileOf(options, request.profile));
    std::printf("%s", text.c_str());
    return 0;
  }
  PINION_ASSIGN(const LaunchEnvironment here, InspectEnvironment());
  PINION_ASSIGN(const Launch launch, PlanLaunch(request, here));
  for (const std::string& warning : launch.warnings) LogWarning(warning);
  if (options.restart) return StayBeside(options, launch.command);
  if (!options.dry_run) return Unexpected(Become(launch.command).error());
  std::printf("%s\n", (options.json ? ToJson(launch).Dump(2) : ShellText(launch.command)).c_str());
  return 0;
}

// Files that are printed in place of starting the server, one of them.
void AddFiles(CLI::App& command, LaunchOptions& options,
              const std::vector<CLI::Option*>& starting) {
  constexpr char kGroup[] = "Files";
  constexpr char kHosts[] = "HOST[:PORT],...";
  CLI::Option* haproxy =
      command
          .add_option("--haproxy", options.haproxy,
                      "only print an HAProxy configuration that listens on --host and --port, for "
                      "servers on these hosts (port 8000) that were launched from the profile")
          ->type_name(kHosts);
  CLI::Option* nginx = command
                           .add_option("--nginx", options.nginx,
                                       "the same for nginx; without checks of /health, which only "
                                       "its commercial version makes")
                           ->type_name(kHosts);
  std::string kinds;
  for (const Artifact& artifact : Artifacts())
    kinds += StrCat(kinds.empty() ? "" : "; ", artifact.kind, ": ", artifact.what);
  CLI::Option* emit = command
                          .add_option("--emit", options.artifact,
                                      "only print a file that the profile gives: " + kinds)
                          ->type_name("KIND")
                          ->check(CLI::IsMember(ArtifactKinds()));
  CLI::Option* kubernetes = command.add_flag_callback(
      "--k8s", [&options] { options.artifact = "k8s"; }, "short for --emit k8s");
  command
      .add_option(
          "--image", options.image,
          "with --emit or --k8s: the container image of pods, see Containerfile (default: " +
              PodOptions().image + ")")
      ->group(kGroup);
  const std::vector<CLI::Option*> files = {haproxy, nginx, emit, kubernetes};
  for (CLI::Option* one : files) {
    one->group(kGroup);
    for (CLI::Option* other : starting) one->excludes(other);
    for (CLI::Option* other : files)
      if (one != other) one->excludes(other);
  }
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
  command
      ->add_option("--allowed-hosts", options->allowed_hosts,
                   "a name that requests may have in Host besides this machine's; repeatable; "
                   "'*': any")
      ->allow_extra_args(false);
  auto* dry_run = command->add_flag("--dry-run", options->dry_run,
                                    "only print the command and its environment");
  auto* restart = command
                      ->add_flag("--restart", options->restart,
                                 "stay beside the server and start it again if it crashes or "
                                 "fails, after 1 s at first and up to 30 s later")
                      ->excludes(dry_run);
  auto* launcher = command->add_option(
      "LAUNCHER", options->launcher,
      "behind `--`: a command that starts the server's, such as -- mpirun -n 2 --host one,two");
  AddFiles(*command, *options, {dry_run, restart, launcher});
  command
      ->add_flag("--json", options->json,
                 "with --dry-run: print JSON instead of text, with the warnings")
      ->needs(dry_run);
  command->callback([options, &exit_code] { exit_code = ExitCodeOf(RunLaunch(*options)); });
}

}  // namespace pinion::harness
