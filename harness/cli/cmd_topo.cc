#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "engine/run/replicas.h"
#include "engine/run/settings.h"
#include "harness/cli/access_flags.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_flags.h"
#include "harness/topo/draw.h"
#include "harness/topo/examine.h"
#include "harness/topo/live.h"

namespace pinion::harness {
namespace {

// The settings that decide which CPUs compute.
const std::vector<std::string> kBindingKeys = {"threads_bind", "reserved_cpus", "smt",
                                               "tensor_parallel", "pipeline_parallel"};
// Those that the memory of MODEL depends on.
const std::vector<std::string> kModelKeys = {"dtype",          "kv_cache_dtype",
                                             "kv_cache_space", "memory_policy",
                                             "max_model_len",  "max_num_batched_tokens",
                                             "max_num_seqs",   "block_size",
                                             "prefix_caching", "moe_prepack"};

constexpr double kLivePatienceSeconds = 10;  // for a server's answer

struct TopoFlags {
  TopologyOptions options;
  EngineFlags engine;
  std::string model;
  std::string live;  // the server's URL; empty: the default's
  CLI::Option* live_option = nullptr;
  AccessFlags access;
  bool has_frontend = false;
  bool json = false;
};

Result<Topology> ExamineAsAsked(const TopoFlags& flags) {
  TopologyOptions options = flags.options;
  PINION_ASSIGN(options.engine, flags.engine.Resolve());
  options.engine.has_frontend = flags.has_frontend;
  options.engine.model = flags.model;
  return Examine(options);
}

Result<LivePlacement> AskForPlacement(const TopoFlags& flags) {
  PINION_ASSIGN(const ServerUrl url,
                ParseServerUrl(flags.live.empty() ? "http://127.0.0.1:8000" : flags.live));
  PINION_ASSIGN(const std::string text,
                HttpFetch(url, "/server_info", kLivePatienceSeconds, flags.access.Resolve()));
  auto info = Json::Parse(text);
  if (!info) return Unexpected(std::move(info).error().In(url.text + "/server_info"));
  return ReadPlacement(*info, url.text);
}

Result<std::string> MachineText(const TopoFlags& flags) {
  PINION_ASSIGN(const Topology topology, ExamineAsAsked(flags));
  return flags.json ? ToJson(topology).Dump() + "\n" : DrawTopology(topology, WantsColour());
}

Result<std::string> LiveText(const TopoFlags& flags) {
  PINION_ASSIGN(const LivePlacement placement, AskForPlacement(flags));
  return flags.json ? ToJson(placement).Dump() + "\n" : DrawPlacement(placement, WantsColour());
}

Status RunTopo(const TopoFlags& flags) {
  PINION_ASSIGN(const std::string text,
                flags.live_option->count() > 0 ? LiveText(flags) : MachineText(flags));
  std::fputs(text.c_str(), stdout);
  return {};
}

// Flags of a running server: all flags of plans are out of place beside it.
void AddLiveFlags(CLI::App& command, TopoFlags& flags) {
  const std::vector<CLI::Option*> plans =
      command.get_options([](const CLI::Option* option) { return !option->check_name("--json"); });
  flags.live_option =
      command
          .add_option("--live", flags.live,
                      "show on which nodes the weights, KV and workspace of each rank of a running "
                      "server are (default: the one at http://127.0.0.1:8000)")
          ->expected(0, 1)
          ->type_name("[URL]");
  for (CLI::Option* plan : plans)
    if (!plan->check_name("--help")) flags.live_option->excludes(plan);
  const std::vector<std::string> names = AccessFlags::Names();
  flags.access.AddTo(command);
  for (const std::string& name : names) command.get_option(name)->needs(flags.live_option);
}

}  // namespace

// `pinion topo`: exit 0 done, 1 the machine cannot be read or a server does not answer, 2 bad
// usage.
void AddTopo(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TopoFlags>();
  TopologyOptions& options = flags->options;
  auto* command = app.add_subcommand(
      "topo", "Draw this machine, its usable CPUs and memory, and the ranks' placement");
  CLI::Option* model = command->add_option(
      "MODEL", flags->model,
      "also show the memory of a model's sequences and how many fit: a folder, a .gguf file, "
      "preset:NAME, or org/name in the Hugging Face cache");
  command->add_flag("--json", flags->json, "print JSON instead of a picture");
  command->add_option(
      "--machine", options.machine,
      "draw another machine: hwloc's synthetic description, such as 'pack:2 numa:1 core:32 pu:2', "
      "or FILE.xml from lstopo");
  command->add_option("--allowed-cpus", options.allowed_cpus,
                      "usable CPUs, such as 0-3,8 (default: those that the system allows)");
  command->add_option("--cpu-quota", options.cpu_quota,
                      "CPU time quota in CPUs, such as 3.5 (default: that of the cgroups)");
  command->add_flag("--frontend", flags->has_frontend,
                    "plan for serve and launch, whose front end gets a core of its own");
  flags->engine.AddSomeTo(*command, kBindingKeys);
  command
      ->add_option("--data-parallel-size,--data-parallel", options.replicas,
                   "plan for so many engines behind one front end, each with -tp times -pp ranks")
      ->check(CLI::Range(1, kMaxReplicas))
      ->capture_default_str();
  flags->engine.AddSomeTo(*command, kModelKeys);
  for (const std::string& key : kModelKeys)
    command->get_option(FindSetting(key)->name())->needs(model);
  AddLiveFlags(*command, *flags);
  command->callback([flags, &exit_code] { exit_code = ExitCodeOf(RunTopo(*flags)); });
}

}  // namespace pinion::harness
