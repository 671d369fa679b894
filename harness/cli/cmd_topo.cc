#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "engine/run/options.h"
#include "harness/cli/commands.h"
#include "harness/topo/draw.h"
#include "harness/topo/examine.h"

namespace pinion::harness {
namespace {

struct TopoFlags {
  TopologyOptions options;
  bool json = false;
  // Unset: the environment's. CLI11's own envname is not used, since it reads a command's
  // variables even when another command runs, and then complains of a flag that was not given.
  std::optional<std::string> threads_bind;
  std::optional<int> reserved_cpus;
};

Result<Topology> ExamineAsAsked(const TopoFlags& flags) {
  EngineOptions environment;
  PINION_TRY(ReadEnvironment(environment));
  TopologyOptions options = flags.options;
  options.threads_bind = flags.threads_bind.value_or(environment.threads_bind);
  options.reserved_cpus = flags.reserved_cpus ? flags.reserved_cpus : environment.reserved_cpus;
  return Examine(options);
}

// https://no-color.org: any value but the empty one.
bool WantsColour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && !(no_colour && *no_colour);
}

int RunTopo(const TopoFlags& flags) {
  const auto topology = ExamineAsAsked(flags);
  if (!topology) return Report(topology.error());
  const std::string text =
      flags.json ? ToJson(*topology).Dump() + "\n" : DrawTopology(*topology, WantsColour());
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

// `pinion topo`: exit 0 done, 1 the machine cannot be read, 2 bad usage.
void AddTopo(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TopoFlags>();
  TopologyOptions& options = flags->options;
  auto* command = app.add_subcommand(
      "topo", "Draw this machine, its usable CPUs and memory, and the ranks' placement");
  command->add_flag("--json", flags->json, "print JSON instead of a picture");
  command->add_option(
      "--machine", options.machine,
      "draw another machine: hwloc's synthetic description, such as 'pack:2 numa:1 core:32 pu:2', "
      "or FILE.xml from lstopo");
  command->add_option("--allowed-cpus", options.allowed_cpus,
                      "usable CPUs, such as 0-3,8 (default: those that the system allows)");
  command->add_option("--cpu-quota", options.cpu_quota,
                      "CPU time quota in CPUs, such as 3.5 (default: that of the cgroups)");
  command
      ->add_option("--threads-bind", flags->threads_bind,
                   "auto, all, nobind, or a CPU list per rank such as 0-3|4-7 (default auto) "
                   "[VLLM_CPU_OMP_THREADS_BIND]")
      ->capture_default_str();
  command
      ->add_option("--tensor-parallel-size", options.tensor_parallel,
                   "ranks: thread teams, each with a share of the model; also -tp N")
      ->capture_default_str();
  command->add_option(
      "--reserved-cpus", flags->reserved_cpus,
      "cores kept free for the front end (HTTP, tokenizer), under auto only (default 0; "
      "with --frontend 1, if every rank keeps at least 4 cores) "
      "[VLLM_CPU_NUM_OF_RESERVED_CPU]");
  command
      ->add_option("--smt", options.smt,
                   "off: one thread per core; on: all hardware threads of a core, under auto only "
                   "(default off)")
      ->check(CLI::IsMember({"off", "on"}));
  command->add_flag("--frontend", options.has_frontend,
                    "plan for serve and launch, whose front end gets a core of its own");
  command->callback([flags, &exit_code] { exit_code = RunTopo(*flags); });
}

}  // namespace pinion::harness
