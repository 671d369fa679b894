#include "harness/cli/sweep_fleet.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "engine/base/file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"
#include "harness/cli/stop_request.h"
#include "harness/cli/usage_error.h"
#include "harness/fleet/kubernetes_jobs.h"
#include "harness/fleet/slurm.h"
#include "harness/report/summary.h"
#include "harness/report/write.h"
#include "harness/store/store.h"
#include "harness/sweep/folder.h"
#include "harness/sweep/gather.h"
#include "harness/sweep/load.h"
#include "harness/sweep/state.h"
#include "harness/sweep/sweep.h"

namespace pinion::harness {
namespace {

constexpr OptionWords kOfTheFleet[] = {{"--launcher", 1}, {"--nodes", 1},     {"--manifest", 0},
                                       {"--image", 1},    {"--node-cpus", 1}, {"--node-memory", 1},
                                       {"--out", 1},      {"--resume", 0},    {"--continue", 0}};

FleetRequest RequestFrom(const SweepFlags& flags, const std::string& model) {
  FleetRequest request;
  request.model = model;
  request.out = flags.out.empty() ? DefaultFolder(model) : flags.out;
  request.nodes = flags.nodes;
  std::vector<OptionWords> options(std::begin(kOfTheFleet), std::end(kOfTheFleet));
  if (flags.launcher == "k8s") options.push_back({"--def", 1});
  request.arguments = WithoutOptions(OwnWords(), options);
  request.arguments.erase(request.arguments.begin());  // the program
  return request;
}

Status PrintJobs(const SweepFlags& flags, FleetRequest request) {
  if (!flags.manifest)
    return Fail(ErrorCode::kUsage,
                "--launcher k8s prints the Jobs and starts none: add --manifest, and give the "
                "output to kubectl apply");
  if (!flags.probe.empty())
    return Fail(ErrorCode::kUsage,
                "--probe is a file of this machine, which the pods do not have; leave it out");
  if (!flags.definition_file.empty()) {
    PINION_ASSIGN(request.definition, ReadFile(flags.definition_file));
  }
  PINION_ASSIGN(const std::string text,
                JobsText(request, {flags.image.empty() ? "pinion" : flags.image, flags.node_cpus,
                                   flags.node_memory}));
  std::cout << text << std::flush;
  return {};
}

bool IsFinished(const std::string& folder) {
  const auto store = Store::Open(folder + "/results.db");
  if (!store) return false;
  const auto progress = ReadProgress(**store);
  return progress && progress->finished;
}

// Whether the node has ended the sweep, in its folder or in that of a later block of its own.
bool HasFinished(const FleetRequest& request, int node) {
  for (int number = 1;; ++number) {
    const std::string folder = BlockFolder(NodeFolder(request, node), number);
    if (!HoldsSweep(folder)) return false;
    if (IsFinished(folder)) return true;
  }
}

// Reports on the nodes that have measured anything, in this allocation or in an earlier one.
Status ReportOnNodes(const FleetRequest& request) {
  std::vector<std::string> folders;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(request.out, ignored)) {
    if (!HoldsSweep(entry.path())) continue;
    const auto stored = StoredSweep(entry.path());
    if (!stored)  // such as one that was killed before it was planned
      std::cerr << entry.path().string() << " is left out: " << stored.error().message << std::endl;
    else if (stored->nodes.is_null())
      folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  if (folders.empty()) return Fail(ErrorCode::kFailed, "no node has begun its sweep");
  const std::string folder = folders.size() == 1 ? folders.front() : request.out;
  if (folders.size() > 1) PINION_TRY(Gather(folders, request.out));
  PINION_ASSIGN(const Results results, LoadResults(folder));
  PINION_TRY(WriteOutputs(results, folder));
  std::cout << SummaryText(results, folder) << std::flush;
  return {};
}

Status RunOnSlurm(FleetRequest request) {
  if (!IsInAllocation()) {
    std::vector<std::string> words = OwnWords();
    words.front() = SelfPath();
    return tl::unexpected(BecomeAllocation(request.nodes, words));
  }
  CatchStopRequests({SIGINT, SIGTERM});
  PINION_ASSIGN(request.names, NodesOfAllocation(request.nodes));
  PINION_ASSIGN(const std::vector<int> failed,
                RunSteps(request, SelfPath(), StopRequested, std::cerr));
  PINION_TRY(ReportOnNodes(request));
  std::vector<std::string> names;
  for (int node = 0; node < request.nodes; ++node)
    if (std::find(failed.begin(), failed.end(), node) != failed.end() ||
        !HasFinished(request, node))
      names.push_back(request.names[static_cast<size_t>(node)]);
  if (names.empty()) return {};
  return Fail(ErrorCode::kFailed,
              StrCat(names.size() == 1 ? "node " : "nodes ", Join(names, ", "),
                     " did not end the sweep (see sweep.log in the folder of each); all finished "
                     "trials are kept, and the same command continues"));
}

// Flags of the other launcher would do nothing.
Status CheckLauncher(const SweepFlags& flags) {
  const bool of_jobs =
      flags.manifest || flags.node_cpus > 0 || !flags.node_memory.empty() || !flags.image.empty();
  if (flags.launcher == "slurm" && of_jobs)
    return Fail(ErrorCode::kUsage,
                "--manifest, --image, --node-cpus and --node-memory are for --launcher k8s; leave "
                "them out");
  if (flags.launcher == "k8s" && (flags.resume || flags.continued))
    return Fail(ErrorCode::kUsage,
                "Jobs continue by themselves; leave out --resume and --continue");
  return {};
}

}  // namespace

std::string DefaultFolder(std::string model) {
  while (!model.empty() && model.back() == '/') model.pop_back();
  if (model.find(':') == std::string::npos) model = model.substr(model.rfind('/') + 1);
  for (char& letter : model)
    if (letter == ':' || letter == '/') letter = '-';
  return "out/" + model;
}

Status RunFleet(const SweepFlags& flags) {
  PINION_TRY(CheckLauncher(flags));
  PINION_ASSIGN(const EngineOptions named, flags.engine.Resolve({}));
  const FleetRequest request = RequestFrom(flags, named.model);
  return flags.launcher == "k8s" ? PrintJobs(flags, request) : RunOnSlurm(request);
}

}  // namespace pinion::harness
