// The adapter of MPI.

#include "engine/comm/mpi_world.h"

// Without the C++ interface that MPI 3 has removed.
#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/clock.h"
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

// Ends this process and asks MPI to end the others. MPI may itself wait for a lost process: the
// alarm ends this process then.
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

// Below MPI_THREAD_MULTIPLE.
const char* NameOfThreads(int offered) {
  if (offered == MPI_THREAD_SERIALIZED) return "MPI_THREAD_SERIALIZED";
  return offered == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE";
}

// All processes, or a part of them.
class MpiWorld final : public Communicator {
 public:
  // A part's group is freed with it. The end of the world of all is MPI's.
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
    if (group_ != MPI_COMM_WORLD) {
      MPI_Comm_free(&group_);
      return;
    }
    heartbeat_.reset();
    MPI_Finalize();
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

}  // namespace

Result<std::unique_ptr<Communicator>> JoinMpiWorld() {
  int offered = MPI_THREAD_SINGLE;
  // Calls overlap: those of a step, by whichever thread is free; Send and Receive of each stage of
  // a pipeline, by a thread of its own; and signs of life, by the heartbeat's thread, while all
  // others wait in a call. No lock could stand between them, since a call waits for other
  // processes.
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &offered);
  if (offered < MPI_THREAD_MULTIPLE)
    return Fail(ErrorCode::kUnsupported,
                StrCat("this MPI library offers ", NameOfThreads(offered),
                       ", but several threads of a process call it at a time; use a library that "
                       "offers MPI_THREAD_MULTIPLE, such as Debian's Open MPI"));
  auto world = std::make_unique<MpiWorld>(MPI_COMM_WORLD);
  world->Watch();
  return std::unique_ptr<Communicator>(std::move(world));
}

}  // namespace pinion
