#include "engine/comm/mpi_launch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

std::optional<size_t> NumberIn(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return std::nullopt;
  return static_cast<size_t>(std::strtoull(text, nullptr, 10));
}

// The variable that `mpirun --bind-to WHAT` sets, and other ways to say which CPUs a process gets.
constexpr const char* kBindingPolicy = "OMPI_MCA_hwloc_base_binding_policy";
constexpr const char* kCpuChoices[] = {kBindingPolicy, "OMPI_MCA_hwloc_base_cpu_set",
                                       "OMPI_MCA_hwloc_base_cpu_list",
                                       "OMPI_MCA_rmaps_rank_file_path"};

bool BoundByDefault() {
  return NumberIn("OMPI_COMM_WORLD_LOCAL_SIZE") &&
         std::none_of(std::begin(kCpuChoices), std::end(kCpuChoices),
                      [](const char* variable) { return std::getenv(variable); });
}

// The parent of a process, and whether Open MPI started it; nothing if its files cannot be read.
struct Ancestor {
  int parent = 0;
  bool launched = false;
};
std::optional<Ancestor> LookAt(int process) {
  const auto status = ReadFile(StrCat("/proc/", process, "/status"), 1 << 20);
  const auto environment = ReadFile(StrCat("/proc/", process, "/environ"), 1 << 24);
  const size_t at = status ? status->find("\nPPid:\t") : std::string::npos;
  if (!environment || at == std::string::npos) return std::nullopt;
  return Ancestor{
      std::atoi(status->c_str() + at + 7),
      StrCat('\0', *environment).find(StrCat('\0', "OMPI_COMM_WORLD_RANK=")) != std::string::npos};
}

}  // namespace

std::optional<LaunchedProcess> LaunchedByMpi() {
  // Open MPI's own variables; Slurm's, if it started us with PMIx.
  auto process = NumberIn("OMPI_COMM_WORLD_RANK"), processes = NumberIn("OMPI_COMM_WORLD_SIZE");
  if (!process && NumberIn("PMIX_RANK")) {
    process = NumberIn("PMIX_RANK");
    processes = NumberIn("SLURM_STEP_NUM_TASKS");
  }
  if (!process || !processes || *processes < 2) return std::nullopt;
  LaunchedProcess launched{*process, *processes};
  const auto first_of = [](const char* name, const char* other, size_t fallback) {
    const auto number = NumberIn(name);
    return number ? *number : NumberIn(other).value_or(fallback);
  };
  launched.locals =
      std::max<size_t>(1, first_of("OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE", 1));
  launched.local = first_of("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", 0) % launched.locals;
  const char* policy = std::getenv(kBindingPolicy);
  launched.shares_cpus = BoundByDefault() || (policy && std::string_view(policy) == "none");
  return launched;
}

std::optional<int> MpiLauncherWithCpus() {
  if (!BoundByDefault()) return std::nullopt;
  for (int process = getppid(); process > 0;) {
    const auto ancestor = LookAt(process);
    if (!ancestor) return std::nullopt;
    if (!ancestor->launched) return process;
    process = ancestor->parent;
  }
  return std::nullopt;
}

void ForgetMpi() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK"})
    unsetenv(variable);
}

}  // namespace pinion
