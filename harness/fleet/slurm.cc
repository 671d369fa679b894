#include "harness/fleet/slurm.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ostream>

#include "engine/base/memory_file.h"
#include "engine/base/process.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr double kPollSeconds = 0.2, kGraceSeconds = 30;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

struct Step {
  int node;
  Process process;
};

// All of a node's CPUs; the sweep binds its threads itself.
std::vector<std::string> StepCommand(const FleetRequest& request, const std::string& binary,
                                     int node) {
  const auto index = static_cast<size_t>(node);
  std::vector<std::string> words = {"srun",
                                    "--nodes=1",
                                    "--ntasks=1",
                                    StrCat("--nodelist=", request.names[index]),
                                    "--cpu-bind=none",
                                    StrCat("--job-name=pinion-sweep-", request.names[index]),
                                    StrCat("--output=", NodeFolder(request, node), "/sweep.log"),
                                    "--open-mode=append"};
  if (const std::string cpus = Variable("SLURM_CPUS_ON_NODE"); !cpus.empty())
    words.push_back("--cpus-per-task=" + cpus);
  words.push_back(binary);
  const std::vector<std::string> arguments = NodeArguments(request, node);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

Result<Step> StartStep(const FleetRequest& request, const std::string& binary, int node) {
  std::error_code failure;
  std::filesystem::create_directories(NodeFolder(request, node), failure);
  if (failure)
    return Fail(ErrorCode::kIo,
                StrCat("cannot make '", NodeFolder(request, node), "': ", failure.message()));
  Process::Options options;
  options.arguments = StepCommand(request, binary, node);
  PINION_ASSIGN(Process process, Process::Start(options));
  return Step{node, std::move(process)};
}

std::string HowEnded(const Process::Exit& exit) {
  if (exit.signal != 0) return StrCat("was ended by signal ", exit.signal);
  return exit.code == 0 ? "has ended" : StrCat("failed with exit code ", exit.code);
}

}  // namespace

bool IsInAllocation() { return !Variable("SLURM_JOB_ID").empty(); }

Result<std::vector<std::string>> NodesOfAllocation(int nodes) {
  constexpr uint64_t kMostBytes = uint64_t{16} << 20;
  PINION_ASSIGN(const MemoryFile listed, MemoryFile::Make("the nodes of the allocation"));
  Process::Options options;
  options.arguments = {"scontrol", "show", "hostnames", Variable("SLURM_JOB_NODELIST")};
  options.stdout_fd = listed.fd();
  PINION_ASSIGN(Process process, Process::Start(options));
  const Process::Exit exit = process.Wait(kGraceSeconds).value_or(Process::Exit{.code = -1});
  PINION_ASSIGN(const std::string text, listed.Text(kMostBytes));
  std::vector<std::string> names;
  for (const std::string& line : Split(text, '\n'))
    if (!line.empty()) names.push_back(line);
  if (exit.code != 0 || exit.signal != 0 || names.empty())
    return Fail(ErrorCode::kUsage,
                StrCat("scontrol names no nodes of this allocation, '",
                       Variable("SLURM_JOB_NODELIST"), "'; run it outside of an allocation"));
  if (names.size() < static_cast<size_t>(nodes))
    return Fail(ErrorCode::kUsage,
                StrCat("--nodes ", nodes, " are more than the ", names.size(),
                       " of this allocation; ask for fewer, or run it outside of an allocation"));
  names.resize(static_cast<size_t>(nodes));
  return names;
}

Error BecomeAllocation(int nodes, const std::vector<std::string>& words) {
  std::vector<std::string> all = {"salloc", StrCat("--nodes=", nodes), "--exclusive", "--no-kill",
                                  "--job-name=pinion-sweep"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> pointers;
  for (std::string& word : all) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers.front(), pointers.data());
  return {ErrorCode::kUsage,
          StrCat("--launcher slurm needs salloc and srun, but salloc ",
                 errno == ENOENT ? "is not installed" : strerror(errno),
                 "; install Slurm's programs, or sweep on each node by itself and join the folders "
                 "with pinion report --gather")};
}

Result<std::vector<int>> RunSteps(const FleetRequest& request, const std::string& binary,
                                  const std::function<bool()>& interrupted, std::ostream& out) {
  std::vector<Step> steps;
  for (int node = 0; node < request.nodes; ++node) {
    PINION_ASSIGN(Step step, StartStep(request, binary, node));
    steps.push_back(std::move(step));
    out << request.names[static_cast<size_t>(node)] << " sweeps; its log is "
        << NodeFolder(request, node) << "/sweep.log" << std::endl;
  }
  std::vector<int> failed;
  bool stopping = false;
  while (!steps.empty()) {
    for (auto step = steps.begin(); step != steps.end();) {
      if (!stopping && interrupted()) {  // all at once: those that wait would go on measuring
        stopping = true;
        for (Step& one : steps) one.process.Signal(SIGTERM);
      }
      auto exit = step->process.Wait(kPollSeconds / static_cast<double>(steps.size()));
      if (!exit && stopping) exit = step->process.Stop(kGraceSeconds);
      if (!exit) {
        ++step;
        continue;
      }
      out << request.names[static_cast<size_t>(step->node)] << " " << HowEnded(*exit) << std::endl;
      if (exit->signal != 0 || exit->code != 0) failed.push_back(step->node);
      step = steps.erase(step);
    }
  }
  return failed;
}

}  // namespace pinion::harness
