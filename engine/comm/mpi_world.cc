// The adapter of MPI.

#include "engine/comm/mpi_world.h"

// Without the C++ interface that MPI 3 has removed.
#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/comm/heartbeat.h"
#include "engine/comm/mpi_life_signs.h"

namespace pinion {
namespace {

// MPI counts in int; no buffer of a step comes near that (2,048 rows of 16,384 floats: 128 MiB).
int Count(size_t bytes) {
  CHECK(bytes <= INT32_MAX) << bytes;
  return static_cast<int>(bytes);
}

std::optional<size_t> NumberIn(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return std::nullopt;
  return static_cast<size_t>(std::strtoull(text, nullptr, 10));
}

// What `mpirun --bind-to WHAT` sets, and other ways to say which CPUs a process gets.
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

// Ends this process and asks MPI to end the others. MPI may itself wait for what is lost: the alarm
// ends this process then.
[[noreturn]] void EndAll() {
  sigset_t alarm_signal;
  sigemptyset(&alarm_signal);
  sigaddset(&alarm_signal, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarm_signal, nullptr);
  std::signal(SIGALRM, SIG_DFL);
  alarm(1);
  MPI_Abort(MPI_COMM_WORLD, 1);
  _exit(1);
}

// Called by MPI for any error of the world's: no result can be trusted any more.
void EndProcess(MPI_Comm*, int* code, ...) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(*code, text, &length);
  std::fprintf(stderr, "pinion: the link to the model's other processes broke: %s\n", text);
  EndAll();
}

void EndForLackOf(size_t process) {
  std::fprintf(
      stderr,
      "pinion: process %zu of the model gave no sign of life for %d s: its host or the link "
      "to it is lost\n",
      process, static_cast<int>(SilenceWatch::kLostNs / 1'000'000'000));
  EndAll();
}

// All processes, or a part of them.
class MpiWorld final : public Communicator {
 public:
  // A part's is freed with it.
  explicit MpiWorld(MPI_Comm group) : group_(group) {
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(EndProcess, &handler);
    MPI_Comm_set_errhandler(group_, handler);
    int number = 0;
    MPI_Comm_rank(group_, &number);
    process_ = static_cast<size_t>(number);
    MPI_Comm_size(group_, &number);
    processes_ = static_cast<size_t>(number);
  }
  ~MpiWorld() override {
    if (group_ != MPI_COMM_WORLD) MPI_Comm_free(&group_);
  }
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  // From now on each process notices if it loses another. Collective.
  void Watch() { heartbeat_ = std::make_unique<Heartbeat>(MakeMpiLifeSigns(), EndForLackOf); }

  size_t process() const override { return process_; }
  size_t processes() const override { return processes_; }

  void Gather(const void* mine, size_t bytes, void* all) override {
    MPI_Allgather(mine, Count(bytes), MPI_BYTE, all, Count(bytes), MPI_BYTE, group_);
  }

  void GatherAtLeader(const void* mine, const std::vector<size_t>& bytes, void* all) override {
    std::vector<int> counts, offsets;
    size_t offset = 0;
    for (const size_t each : bytes) {
      counts.push_back(Count(each));
      offsets.push_back(Count(offset));
      offset += each;
    }
    MPI_Gatherv(mine, counts[process_], MPI_BYTE, all, counts.data(), offsets.data(), MPI_BYTE, 0,
                group_);
  }

  // MPI's own waiting takes a whole core, which an idle server's followers must leave alone.
  void Broadcast(void* data, size_t bytes) override {
    MPI_Request request;
    MPI_Ibcast(data, Count(bytes), MPI_BYTE, 0, group_, &request);
    Await(request, kSpinNs);
  }

  void Send(size_t process, int channel, const void* data, size_t bytes) override {
    MPI_Send(data, Count(bytes), MPI_BYTE, static_cast<int>(process), kFirstTag + channel, group_);
  }

  // The stage before computes meanwhile, maybe on the CPU of this thread.
  void Receive(size_t process, int channel, void* data, size_t bytes) override {
    MPI_Request request;
    MPI_Irecv(data, Count(bytes), MPI_BYTE, static_cast<int>(process), kFirstTag + channel, group_,
              &request);
    Await(request, kShortSpinNs);
  }

  std::unique_ptr<Communicator> Part(int part) override {
    MPI_Comm group;
    MPI_Comm_split(group_, part, static_cast<int>(process_), &group);
    return std::make_unique<MpiWorld>(group);
  }

 private:
  // Longer than sampling and scheduling take between two steps.
  static constexpr int64_t kSpinNs = 20'000'000;
  static constexpr int64_t kShortSpinNs = 50'000;
  static constexpr std::chrono::microseconds kNap{500}, kShortNap{20};
  static constexpr int kFirstTag = 1000;  // signs of life have lower ones

  void Await(MPI_Request& request, int64_t spin_ns) {
    const int64_t began_ns = NowNs();
    for (int done = 0;;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done) return;
      const int64_t waited_ns = NowNs() - began_ns;
      if (waited_ns > kSpinNs)
        std::this_thread::sleep_for(kNap);
      else if (waited_ns > spin_ns)
        std::this_thread::sleep_for(kShortNap);
    }
  }

  MPI_Comm group_;

  size_t process_ = 0, processes_ = 1;
  std::unique_ptr<Heartbeat> heartbeat_;
};

std::unique_ptr<MpiWorld>& World() {
  static std::unique_ptr<MpiWorld> world;
  return world;
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

std::optional<int> LauncherWithCpus() {
  if (!BoundByDefault()) return std::nullopt;
  for (int process = getppid(); process > 0;) {
    const auto ancestor = LookAt(process);
    if (!ancestor) return std::nullopt;
    if (!ancestor->launched) return process;
    process = ancestor->parent;
  }
  return std::nullopt;
}

void LeaveMpiToChild() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK"})
    unsetenv(variable);
}

Result<Communicator*> JoinMpiWorld() {
  if (!LaunchedByMpi()) return nullptr;
  if (World()) return World().get();
  int offered = MPI_THREAD_SINGLE;
  // Whichever thread is free makes the calls of a step, one at a time; signs of life have a thread.
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &offered);
  if (offered < MPI_THREAD_SERIALIZED)
    return Fail(ErrorCode::kUnsupported,
                "this MPI library allows calls from one thread only; use one built with "
                "MPI_THREAD_MULTIPLE, such as Debian's");
  World() = std::make_unique<MpiWorld>(MPI_COMM_WORLD);
  // A matter of the library, which is the same in all processes.
  if (offered >= MPI_THREAD_MULTIPLE)
    World()->Watch();
  else
    LogWarning(
        "this MPI library lacks MPI_THREAD_MULTIPLE: a host that is lost will not be noticed");
  return World().get();
}

void LeaveMpiWorld() {
  if (!World()) return;
  World().reset();
  MPI_Finalize();
}

}  // namespace pinion
